//! Signers and tokens for the tests of the kind `jwt`: honest ones, and forged ones byte by byte.

use std::cell::RefCell;
use std::io::Write;
use std::path::PathBuf;
use std::sync::LazyLock;

use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, PKCS_RSA_SHA256, SignatureAlgorithm};
use serde_json::{Value, json};

/// What `FakeClock` starts with, in seconds.
pub(crate) const NOW_S: u64 = 1_700_000_000;

pub(crate) const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// Somebody who signs.
pub(crate) struct Signer {
    pub(crate) algorithm: Algorithm,
    pub(crate) key: EncodingKey,
    /// What verifies it: a public key in PEM, or the secret.
    pub(crate) public: String,
    raw: Vec<u8>,
}

impl Signer {
    fn generated(algorithm: Algorithm, kind: &'static SignatureAlgorithm) -> Self {
        let pair = KeyPair::generate_for(kind).unwrap();
        let pem = pair.serialize_pem();
        let key = match algorithm {
            Algorithm::RS256 => EncodingKey::from_rsa_pem(pem.as_bytes()),
            Algorithm::ES256 => EncodingKey::from_ec_pem(pem.as_bytes()),
            _ => EncodingKey::from_ed_pem(pem.as_bytes()),
        };
        Self { algorithm, key: key.unwrap(), public: pair.public_key_pem(), raw: pair.public_key_raw().to_vec() }
    }

    pub(crate) fn with_secret(secret: &str) -> Self {
        let key = EncodingKey::from_secret(secret.as_bytes());
        Self { algorithm: Algorithm::HS256, key, public: secret.to_owned(), raw: Vec::new() }
    }

    pub(crate) fn ec() -> Self {
        Self::generated(Algorithm::ES256, &PKCS_ECDSA_P256_SHA256)
    }

    pub(crate) fn ed() -> Self {
        Self::generated(Algorithm::EdDSA, &PKCS_ED25519)
    }

    pub(crate) fn sign(&self, kid: Option<&str>, claims: &Value) -> String {
        let header = Header { kid: kid.map(str::to_owned), ..Header::new(self.algorithm) };
        jsonwebtoken::encode(&header, claims, &self.key).unwrap()
    }

    /// A token with that header, whatever it says, and a signature that fits.
    pub(crate) fn sign_raw(&self, header: &str, claims: &str) -> String {
        let message = format!("{}.{}", base64url(header.as_bytes()), base64url(claims.as_bytes()));
        let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &self.key, self.algorithm).unwrap();
        format!("{message}.{signature}")
    }

    pub(crate) fn jwk(&self, kid: Option<&str>) -> Value {
        if self.algorithm == Algorithm::EdDSA {
            return json!({ "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "kid": kid, "x": base64url(&self.raw) });
        }
        let mut jwk = Jwk::from_encoding_key(&self.key, self.algorithm).unwrap();
        jwk.common.key_id = kid.map(str::to_owned);
        serde_json::to_value(jwk).unwrap()
    }
}

/// Making an RSA key takes a while, so all tests share one.
pub(crate) static RSA: LazyLock<Signer> = LazyLock::new(|| Signer::generated(Algorithm::RS256, &PKCS_RSA_SHA256));

pub(crate) fn claims() -> Value {
    json!({ "sub": "alice", "exp": NOW_S + 60 })
}

/// The usual claims with one more, or without it.
pub(crate) fn claims_with(name: &str, value: Option<Value>) -> Value {
    let mut claims = claims();
    match value {
        Some(value) => claims[name] = value,
        None => drop(claims.as_object_mut().unwrap().remove(name)),
    }
    claims
}

pub(crate) fn set_of(keys: &[Value]) -> Vec<u8> {
    json!({ "keys": keys }).to_string().into_bytes()
}

thread_local! {
    /// Every test has a thread of its own; its files go with it.
    static FILES: RefCell<Vec<tempfile::NamedTempFile>> = const { RefCell::new(Vec::new()) };
}

/// A file that only its owner can read, and that goes with the test.
pub(crate) fn file(contents: impl AsRef<[u8]>) -> PathBuf {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(contents.as_ref()).unwrap();
    let path = file.path().to_owned();
    FILES.with_borrow_mut(|files| files.push(file));
    path
}

pub(crate) fn base64url(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..=chunk.len() {
            text.push(char::from(DIGITS[(bits >> (18 - 6 * place) & 63) as usize]));
        }
    }
    text
}
