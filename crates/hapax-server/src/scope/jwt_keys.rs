//! The keys that verify tokens: from a file with a PEM or a secret, and from a JSON Web Key Set.
//!
//! A key serves exactly one algorithm, the one that its type and the configuration agree on. So a token cannot
//! have an RSA key used as an HMAC secret, or have its signature ignored: what it says of its algorithm only
//! selects among keys. Fetching a set from a URL is left to `jwks_url`.

use std::fmt;
use std::path::Path;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};

use super::refusal::ScopeConfigError;
use super::token_shape::Claimed;

/// A secret shorter than the digest it keys can be guessed sooner than the digest (RFC 7518, 3.2).
const SECRET_BYTES_MIN: usize = 32;

/// Keys of one set that are used. A token without a key id is tried on each.
const KEYS_MAX: usize = 32;

/// The uncompressed point of a P-256 key.
const P256_POINT_BYTES: usize = 65;

/// How tokens are signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JwtAlgorithm {
    /// HMAC with SHA-256 and a shared secret.
    Hs256,
    /// RSA (PKCS #1 v1.5) with SHA-256, 2048 bits or more.
    Rs256,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// Ed25519.
    EdDsa,
}

impl JwtAlgorithm {
    /// The name in the header of a token.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Hs256 => "HS256",
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
            Self::EdDsa => "EdDSA",
        }
    }

    pub(super) fn known(self) -> Algorithm {
        match self {
            Self::Hs256 => Algorithm::HS256,
            Self::Rs256 => Algorithm::RS256,
            Self::Es256 => Algorithm::ES256,
            Self::EdDsa => Algorithm::EdDSA,
        }
    }
}

impl std::str::FromStr for JwtAlgorithm {
    type Err = ScopeConfigError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let all = [Self::Hs256, Self::Rs256, Self::Es256, Self::EdDsa];
        all.into_iter().find(|known| known.name() == name).ok_or_else(|| ScopeConfigError::Jwt {
            cause: "an algorithm is not known".to_owned(),
            next: "use HS256, RS256, ES256 or EdDSA",
        })
    }
}

/// A key and the one algorithm that it serves.
#[derive(Clone)]
pub(super) struct VerifyingKey {
    kid: Option<String>,
    pub(super) algorithm: JwtAlgorithm,
    pub(super) key: DecodingKey,
}

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifyingKey").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

impl VerifyingKey {
    /// Whether a token with that header may have been signed by it. A key without an id may have signed any.
    pub(super) fn fits(&self, claimed: &Claimed) -> bool {
        let same_kid = match (&self.kid, &claimed.kid) {
            (Some(own), Some(wanted)) => wanted.as_str() == Some(own),
            _ => true,
        };
        same_kid && claimed.alg.as_str() == Some(self.algorithm.name())
    }
}

/// The one key in a file: a secret for HS256, else a public key in PEM.
pub(super) fn of_file(file: &Path, algorithm: JwtAlgorithm) -> Result<VerifyingKey, ScopeConfigError> {
    let unfit = |cause: &str, next| ScopeConfigError::File { file: file.to_owned(), cause: cause.to_owned(), next };
    let bytes = read(file)?;
    let is_pem = bytes.trim_ascii_start().starts_with(b"-----BEGIN");
    if algorithm == JwtAlgorithm::Hs256 {
        refuse_world_readable(file)?;
        if is_pem {
            return Err(unfit(
                "is a PEM file, which is no secret",
                "name the file of the shared secret, or RS256 or ES256",
            ));
        }
        let secret = without_line_end(&bytes);
        return match secret.len() {
            0..SECRET_BYTES_MIN => {
                Err(unfit("holds a secret of under 32 bytes", "use a random one of 32 bytes or more"))
            }
            _ => Ok(VerifyingKey { kid: None, algorithm, key: DecodingKey::from_secret(secret) }),
        };
    }
    if !is_pem || contains(&bytes, b"PRIVATE KEY-----") || contains(&bytes, b"CERTIFICATE-----") {
        return Err(unfit("holds no public key in PEM", "name a file that begins with -----BEGIN PUBLIC KEY-----"));
    }
    let key = match algorithm {
        JwtAlgorithm::Rs256 => DecodingKey::from_rsa_pem(&bytes),
        JwtAlgorithm::Es256 => DecodingKey::from_ec_pem(&bytes),
        _ => DecodingKey::from_ed_pem(&bytes),
    };
    let key =
        key.map_err(|_| unfit("holds a key of another type than the algorithm's", "name the key of the algorithm"))?;
    if algorithm == JwtAlgorithm::Es256 && key.try_get_as_bytes().map_or(0, <[u8]>::len) != P256_POINT_BYTES {
        return Err(unfit("holds a key on another curve than P-256", "name a P-256 key for ES256"));
    }
    Ok(VerifyingKey { kid: None, algorithm, key })
}

/// The usable keys of a set in a file.
pub(super) fn of_set_file(file: &Path, algorithms: &[JwtAlgorithm]) -> Result<Vec<VerifyingKey>, ScopeConfigError> {
    if algorithms.contains(&JwtAlgorithm::Hs256) {
        refuse_world_readable(file)?;
    }
    of_set(&read(file)?, algorithms).map_err(|cause| ScopeConfigError::File {
        file: file.to_owned(),
        cause: cause.to_owned(),
        next: "name a JSON Web Key Set with a key for a configured algorithm",
    })
}

/// The usable keys of a set. Keys for other purposes and of unknown types are passed over, as RFC 7517 asks.
pub(super) fn of_set(bytes: &[u8], algorithms: &[JwtAlgorithm]) -> Result<Vec<VerifyingKey>, &'static str> {
    #[derive(serde::Deserialize)]
    struct Set {
        keys: Vec<serde_json::Value>,
    }
    let set: Set = serde_json::from_slice(bytes).map_err(|_| "is not a JSON Web Key Set")?;
    let usable = set.keys.into_iter().filter_map(|key| of_jwk(key, algorithms)).take(KEYS_MAX);
    let keys: Vec<VerifyingKey> = usable.collect();
    if keys.is_empty() { Err("holds no key for a configured algorithm") } else { Ok(keys) }
}

fn of_jwk(jwk: serde_json::Value, algorithms: &[JwtAlgorithm]) -> Option<VerifyingKey> {
    let for_algorithm = jwk.get("alg").and_then(|alg| alg.as_str()).map(str::to_owned);
    let jwk: Jwk = serde_json::from_value(jwk).ok()?;
    let algorithm = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => JwtAlgorithm::Rs256,
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => JwtAlgorithm::Es256,
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => JwtAlgorithm::EdDsa,
        AlgorithmParameters::OctetKey(_) => JwtAlgorithm::Hs256,
        _ => return None,
    };
    let for_signatures = jwk.common.public_key_use.as_ref().is_none_or(|used| *used == PublicKeyUse::Signature);
    let same_algorithm = for_algorithm.is_none_or(|alg| alg == algorithm.name());
    if !for_signatures || !same_algorithm || !algorithms.contains(&algorithm) {
        return None;
    }
    let key = DecodingKey::from_jwk(&jwk).ok()?;
    let long_enough = |bytes: &[u8]| algorithm != JwtAlgorithm::Hs256 || bytes.len() >= SECRET_BYTES_MIN;
    key.try_get_as_bytes().map_or(true, long_enough).then_some(VerifyingKey { kid: jwk.common.key_id, algorithm, key })
}

fn read(file: &Path) -> Result<Vec<u8>, ScopeConfigError> {
    std::fs::read(file).map_err(|error| ScopeConfigError::File {
        file: file.to_owned(),
        cause: format!("cannot be read ({error})"),
        next: "name a readable file",
    })
}

#[cfg(unix)]
fn refuse_world_readable(file: &Path) -> Result<(), ScopeConfigError> {
    use std::os::unix::fs::PermissionsExt;
    match std::fs::metadata(file) {
        Ok(found) if found.permissions().mode() & 0o007 != 0 => Err(ScopeConfigError::File {
            file: file.to_owned(),
            cause: "holds a secret and can be read by everybody".to_owned(),
            next: "chmod 600 it",
        }),
        _ => Ok(()),
    }
}

#[cfg(not(unix))]
fn refuse_world_readable(_: &Path) -> Result<(), ScopeConfigError> {
    Ok(())
}

/// Editors end a file with a line end that is not part of the secret.
fn without_line_end(bytes: &[u8]) -> &[u8] {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    bytes.strip_suffix(b"\r").unwrap_or(bytes)
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}
