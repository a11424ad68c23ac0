//! JSON values made at random, each with many spellings: what tests compare canonical bytes with.

use proptest::prelude::*;
use std::collections::BTreeMap;

/// A JSON value; equal exactly if it means the same.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    Array(Vec<Value>),
    Object(BTreeMap<String, Value>),
}

/// `digits` times ten to the `exponent`. Digits end in no zero; zero has no sign and no exponent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Number {
    negative: bool,
    digits: u128,
    exponent: i32,
}

impl Number {
    pub(crate) fn new(negative: bool, mut digits: u128, mut exponent: i32) -> Self {
        if digits == 0 {
            return Self { negative: false, digits, exponent: 0 };
        }
        while digits.is_multiple_of(10) {
            digits /= 10;
            exponent += 1;
        }
        Self { negative, digits, exponent }
    }

    /// The independent parser may be a few units off in the last place, or lose what is subnormal.
    pub(crate) fn is_near(&self, double: f64) -> bool {
        let sign = if self.negative { "-" } else { "" };
        let own: f64 = format!("{sign}{}e{}", self.digits, self.exponent).parse().unwrap();
        (own - double).abs() <= own.abs() * 1e-14 + 1e-300
    }
}

/// Enough cases to find what is wrong, few enough to run always.
pub(crate) fn config() -> ProptestConfig {
    ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() }
}

/// Short texts of characters that are easily confused or escaped.
pub(crate) fn text() -> impl Strategy<Value = String> {
    let character = prop_oneof![
        4 => prop::char::range('a', 'e'),
        2 => prop::sample::select(vec!['"', '\\', '/', '\u{7f}', '\u{d7ff}', '\u{e000}', '\u{ffff}', '\u{10000}', '😂']),
        2 => prop::char::range('\0', '\u{1f}'),
        1 => any::<char>(),
    ];
    proptest::collection::vec(character, 0..5).prop_map(String::from_iter)
}

/// Numbers of all sizes.
pub(crate) fn number() -> impl Strategy<Value = Number> {
    let digits = prop_oneof![0..200_u128, any::<u64>().prop_map(u128::from), any::<u128>()];
    let exponent = prop_oneof![4 => Just(0), 3 => -30..30, 1 => -500..500];
    (any::<bool>(), digits, exponent).prop_map(|(negative, digits, exponent)| Number::new(negative, digits, exponent))
}

/// Numbers of which two are often equal.
pub(crate) fn small_number() -> impl Strategy<Value = Number> {
    (any::<bool>(), 0..12_u128, -2..3).prop_map(|(negative, digits, exponent)| Number::new(negative, digits, exponent))
}

/// Small documents.
pub(crate) fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        number().prop_map(Value::Number),
        text().prop_map(Value::Text),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
            proptest::collection::btree_map(text(), inner, 0..5).prop_map(Value::Object),
        ]
    })
}

/// Random choices from a seed (SplitMix64).
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// A number from 0 to `sides`, which is excluded.
    pub(crate) fn below(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % sides as u64).unwrap()
    }

    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }
}

/// Changes one thing somewhere in the value.
pub(crate) fn change(value: &mut Value, dice: &mut Dice) {
    match value {
        Value::Array(values) if !values.is_empty() && dice.below(3) > 0 => {
            let index = dice.below(values.len());
            change(&mut values[index], dice);
        }
        Value::Object(members) if !members.is_empty() && dice.below(3) > 0 => {
            let index = dice.below(members.len());
            change(members.values_mut().nth(index).unwrap(), dice);
        }
        Value::Null => *value = Value::Bool(false),
        Value::Bool(bool) => *bool = !*bool,
        Value::Number(Number { negative, digits, exponent }) => {
            *value = Value::Number(match dice.below(3) {
                0 if *digits > 0 => Number::new(!*negative, *digits, *exponent),
                1 if *digits > 0 => Number::new(*negative, *digits, *exponent + 1),
                _ => Number::new(*negative, *digits ^ 1, *exponent),
            });
        }
        Value::Text(text) => text.push('x'),
        Value::Array(values) => values.push(Value::Null),
        Value::Object(members) => match members.pop_first() {
            Some((name, value)) if dice.below(2) > 0 => {
                let renamed = name + "zz";
                members.insert(renamed, value);
            }
            Some(_) => {}
            None => drop(members.insert(String::new(), Value::Null)),
        },
    }
}

/// One of the many spellings of a value.
pub(crate) fn spell(value: &Value, seed: u64) -> String {
    let mut out = String::new();
    spell_value(value, &mut Dice(seed), &mut out);
    out
}

fn spell_value(value: &Value, dice: &mut Dice, out: &mut String) {
    out.push_str(space(dice));
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(bool) => out.push_str(if *bool { "true" } else { "false" }),
        Value::Number(number) => spell_number(number, dice, out),
        Value::Text(text) => spell_text(text, dice, out),
        Value::Array(values) => {
            out.push('[');
            out.push_str(space(dice));
            for (index, value) in values.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                spell_value(value, dice, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            out.push_str(space(dice));
            let mut members: Vec<_> = members.iter().collect();
            for index in (1..members.len()).rev() {
                members.swap(index, dice.below(index + 1));
            }
            for (index, (name, value)) in members.into_iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                out.push_str(space(dice));
                spell_text(name, dice, out);
                out.push_str(space(dice));
                out.push(':');
                spell_value(value, dice, out);
            }
            out.push('}');
        }
    }
    out.push_str(space(dice));
}

fn space(dice: &mut Dice) -> &'static str {
    dice.pick(&["", "", "", " ", "\n\t", "\r\n"])
}

fn spell_number(number: &Number, dice: &mut Dice, out: &mut String) {
    let zero = number.digits == 0;
    if number.negative || (zero && dice.below(2) > 0) {
        out.push('-');
    }
    let zeros = dice.below(3);
    let digits = format!("{}{}", number.digits, "0".repeat(if zero { 0 } else { zeros }));
    let point = dice.below(digits.len() + 1);
    let (integer, fraction) = digits.split_at(point);
    let ahead = if point == 0 { dice.below(4) } else { 0 };
    out.push_str(if integer.is_empty() { "0" } else { integer });
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(&"0".repeat(ahead));
        out.push_str(fraction);
    }
    let exponent = match zero {
        true => i32::try_from(dice.below(9)).unwrap(),
        false => number.exponent + i32::try_from(fraction.len() + ahead).unwrap() - i32::try_from(zeros).unwrap(),
    };
    if exponent != 0 || dice.below(3) == 0 {
        let plus = if exponent < 0 { "" } else { dice.pick(&["", "+"]) };
        out.push_str(&format!("{}{plus}{exponent}", dice.pick(&["e", "E", "e"])));
    }
}

fn spell_text(text: &str, dice: &mut Dice, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match (dice.below(4), character) {
            (0, _) => spell_as_units(character, dice, out),
            (_, '"') => out.push_str("\\\""),
            (_, '\\') => out.push_str("\\\\"),
            (1, '/') => out.push_str("\\/"),
            (1 | 2, '\u{8}') => out.push_str("\\b"),
            (1 | 2, '\t') => out.push_str("\\t"),
            (1 | 2, '\n') => out.push_str("\\n"),
            (1 | 2, '\u{c}') => out.push_str("\\f"),
            (1 | 2, '\r') => out.push_str("\\r"),
            (_, '\0'..'\u{20}') => spell_as_units(character, dice, out),
            _ => out.push(character),
        }
    }
    out.push('"');
}

fn spell_as_units(character: char, dice: &mut Dice, out: &mut String) {
    for unit in character.encode_utf16(&mut [0; 2]) {
        out.push_str(&if dice.below(2) > 0 { format!("\\u{unit:04x}") } else { format!("\\u{unit:04X}") });
    }
}
