//! Random expressions, evaluated by the interpreter and by what the language's definition says of them
//! (cel-spec, langdef.md), written once more.

use std::cell::Cell;
use std::cmp::Ordering;
use std::fmt;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::{Item, Predicate, STACK_BYTES, environment};

/// The interpreter refuses what has no value; so does this.
type Outcome<T> = Result<T, NoValue>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NoValue;

#[derive(Debug, Clone)]
enum Int {
    Literal(i64),
    Size,
    Version,
    SizeOf(Text),
    Sum(Box<Int>, &'static str, Box<Int>),
}

/// A string, or the key, which is bytes where it is not UTF-8.
#[derive(Debug, Clone)]
enum Text {
    Literal(String),
    Key,
    Value,
    Joined(Box<Text>, Box<Text>),
}

#[derive(Debug, Clone)]
enum Truth {
    Literal(bool),
    Ints(Int, &'static str, Int),
    Texts(Text, &'static str, Text),
    Bytes(Vec<u8>),
    IsText,
    In(Int, Vec<Int>),
    Method(Text, &'static str, String),
    Not(Box<Truth>),
    Both(Box<Truth>, Box<Truth>),
    Either(Box<Truth>, Box<Truth>),
    Chosen(Box<Truth>, Box<Truth>, Box<Truth>),
}

impl Int {
    fn value(&self, item: Item<'_>) -> Outcome<i64> {
        match self {
            Int::Literal(number) => Ok(*number),
            Int::Size => Ok(item.value.len() as i64),
            Int::Version => Ok(i64::try_from(item.version).unwrap_or(i64::MAX)),
            Int::SizeOf(text) => match text.value(item)? {
                Ok(text) => Ok(text.chars().count() as i64),
                Err(bytes) => Ok(bytes.len() as i64),
            },
            Int::Sum(left, operator, right) => {
                let (left, right) = (left.value(item)?, right.value(item)?);
                let result = match *operator {
                    "+" => left.checked_add(right),
                    "-" => left.checked_sub(right),
                    "*" => left.checked_mul(right),
                    "/" => left.checked_div(right),
                    _ => left.checked_rem(right),
                };
                result.ok_or(NoValue)
            }
        }
    }
}

impl Text {
    /// A string, or bytes.
    fn value(&self, item: Item<'_>) -> Outcome<Result<String, Vec<u8>>> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec());
        match self {
            Text::Literal(text) => Ok(Ok(text.clone())),
            Text::Key => Ok(text(item.key).map_err(|error| error.into_bytes())),
            Text::Value => text(item.value).map(Ok).map_err(|_| NoValue),
            Text::Joined(left, right) => match (left.value(item)?, right.value(item)?) {
                (Ok(left), Ok(right)) => Ok(Ok(left + &right)),
                (Err(left), Err(right)) => Ok(Err([left, right].concat())),
                _ => Err(NoValue),
            },
        }
    }
}

fn compared(ordering: Ordering, operator: &str) -> bool {
    match operator {
        "<" => ordering.is_lt(),
        "<=" => ordering.is_le(),
        ">" => ordering.is_gt(),
        ">=" => ordering.is_ge(),
        "==" => ordering.is_eq(),
        _ => ordering.is_ne(),
    }
}

impl Truth {
    fn value(&self, item: Item<'_>) -> Outcome<bool> {
        match self {
            Truth::Literal(truth) => Ok(*truth),
            Truth::Ints(left, operator, right) => {
                Ok(compared(left.value(item)?.cmp(&right.value(item)?), operator))
            }
            Truth::Texts(left, operator, right) => match (left.value(item)?, right.value(item)?) {
                (Ok(left), Ok(right)) => Ok(compared(left.cmp(&right), operator)),
                (Err(left), Err(right)) => Ok(compared(left.cmp(&right), operator)),
                // What is of different types is not equal, and in no order.
                _ if *operator == "==" => Ok(false),
                _ if *operator == "!=" => Ok(true),
                _ => Err(NoValue),
            },
            Truth::Bytes(bytes) => Ok(item.value == bytes),
            Truth::IsText => Ok(std::str::from_utf8(item.key).is_ok()),
            Truth::In(wanted, list) => {
                let list = list.iter().map(|int| int.value(item)).collect::<Outcome<Vec<_>>>();
                let wanted = wanted.value(item)?;
                Ok(list?.contains(&wanted))
            }
            Truth::Method(text, method, other) => {
                let text = text.value(item)?.map_err(|_| NoValue)?;
                Ok(match *method {
                    "startsWith" => text.starts_with(other),
                    "endsWith" => text.ends_with(other),
                    _ => text.contains(other),
                })
            }
            Truth::Not(truth) => Ok(!truth.value(item)?),
            // One side may decide, whatever is wrong with the other.
            Truth::Both(left, right) => match (left.value(item), right.value(item)) {
                (Ok(false), _) | (_, Ok(false)) => Ok(false),
                (left, right) => Ok(left? && right?),
            },
            Truth::Either(left, right) => match (left.value(item), right.value(item)) {
                (Ok(true), _) | (_, Ok(true)) => Ok(true),
                (left, right) => Ok(left? || right?),
            },
            Truth::Chosen(condition, yes, no) => {
                if condition.value(item)? {
                    yes.value(item)
                } else {
                    no.value(item)
                }
            }
        }
    }
}

/// As a literal in single quotes.
fn quoted(text: &str) -> String {
    let escaped = text.chars().map(|letter| match letter {
        '\'' => "\\'".to_owned(),
        '\\' => "\\\\".to_owned(),
        ' '..='~' => letter.to_string(),
        _ => format!("\\U{:08x}", u32::from(letter)),
    });
    format!("'{}'", escaped.collect::<String>())
}

impl fmt::Display for Int {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Int::Literal(number) => write!(f, "{number}"),
            Int::Size => f.write_str("size"),
            Int::Version => f.write_str("version"),
            Int::SizeOf(text) => write!(f, "size({text})"),
            Int::Sum(left, operator, right) => write!(f, "({left} {operator} {right})"),
        }
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Text::Literal(text) => f.write_str(&quoted(text)),
            Text::Key => f.write_str("key"),
            Text::Value => f.write_str("string(value)"),
            Text::Joined(left, right) => write!(f, "({left} + {right})"),
        }
    }
}

impl fmt::Display for Truth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Truth::Literal(truth) => write!(f, "{truth}"),
            Truth::Ints(left, operator, right) => write!(f, "({left} {operator} {right})"),
            Truth::Texts(left, operator, right) => write!(f, "({left} {operator} {right})"),
            Truth::Bytes(bytes) => {
                let escaped = bytes.iter().map(|byte| format!("\\x{byte:02x}"));
                write!(f, "(value == b'{}')", escaped.collect::<String>())
            }
            Truth::IsText => f.write_str("(type(key) == string)"),
            Truth::In(wanted, list) => {
                let list: Vec<_> = list.iter().map(ToString::to_string).collect();
                write!(f, "({wanted} in [{}])", list.join(", "))
            }
            Truth::Method(text, method, other) => {
                write!(f, "{text}.{method}({})", quoted(other))
            }
            Truth::Not(truth) => write!(f, "!{truth}"),
            Truth::Both(left, right) => write!(f, "({left} && {right})"),
            Truth::Either(left, right) => write!(f, "({left} || {right})"),
            Truth::Chosen(condition, yes, no) => write!(f, "({condition} ? {yes} : {no})"),
        }
    }
}

/// Letters of one byte to four, and what has to be escaped.
fn word() -> impl Strategy<Value = String> {
    "[ab'\\\\é€𝄞]{0,3}"
}

fn text() -> impl Strategy<Value = Text> {
    let leaf = prop_oneof![
        2 => word().prop_map(Text::Literal),
        3 => Just(Text::Key),
        1 => Just(Text::Value)
    ];
    leaf.prop_recursive(1, 2, 2, |text| {
        (text.clone(), text).prop_map(|(left, right)| Text::Joined(left.into(), right.into()))
    })
}

fn int() -> impl Strategy<Value = Int> {
    let leaf = prop_oneof![
        2 => (-3_i64..8).prop_map(Int::Literal),
        1 => prop_oneof![Just(i64::MAX), Just(-i64::MAX)].prop_map(Int::Literal),
        2 => Just(Int::Size),
        2 => Just(Int::Version),
        1 => text().prop_map(Int::SizeOf),
    ];
    leaf.prop_recursive(3, 6, 2, |int| {
        let operator = prop::sample::select(vec!["+", "-", "*", "/", "%"]);
        (int.clone(), operator, int)
            .prop_map(|(left, operator, right)| Int::Sum(left.into(), operator, right.into()))
    })
}

fn truth() -> impl Strategy<Value = Truth> {
    let operator = || prop::sample::select(vec!["<", "<=", ">", ">=", "==", "!="]);
    let method = prop::sample::select(vec!["startsWith", "endsWith", "contains"]);
    let leaf = prop_oneof![
        1 => any::<bool>().prop_map(Truth::Literal),
        4 => (int(), operator(), int())
            .prop_map(|(left, operator, right)| Truth::Ints(left, operator, right)),
        3 => (text(), operator(), text())
            .prop_map(|(left, operator, right)| Truth::Texts(left, operator, right)),
        1 => prop::collection::vec(any::<u8>(), 0..3).prop_map(Truth::Bytes),
        1 => Just(Truth::IsText),
        1 => (int(), prop::collection::vec(int(), 0..3))
            .prop_map(|(wanted, list)| Truth::In(wanted, list)),
        2 => (text(), method, word())
            .prop_map(|(text, method, other)| Truth::Method(text, method, other)),
    ];
    leaf.prop_recursive(3, 8, 3, |truth| {
        let boxed = || truth.clone().prop_map(Box::new);
        prop_oneof![
            boxed().prop_map(Truth::Not),
            (boxed(), boxed()).prop_map(|(left, right)| Truth::Both(left, right)),
            (boxed(), boxed()).prop_map(|(left, right)| Truth::Either(left, right)),
            (boxed(), boxed(), boxed())
                .prop_map(|(condition, yes, no)| Truth::Chosen(condition, yes, no)),
        ]
    })
}

/// Text, and what is none.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => word().prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..3),
    ]
}

/// On a thread like those of the runtime.
fn with_stack(run: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(run);
    thread.expect("a thread").join().expect("it does not panic");
}

#[test]
fn expressions_mean_what_the_language_says() {
    with_stack(|| {
        let version = prop_oneof![0..9_u64, Just(u64::MAX)];
        let cases = (truth(), bytes(), bytes(), version);
        let mut runner = TestRunner::new(Config { cases: 500, ..Config::default() });
        let (holding, failing) = (Cell::new(0), Cell::new(0));
        let outcome = runner.run(&cases, |(truth, key, value, version)| {
            let item = Item { key: &key, value: &value, version };
            let text = truth.to_string();
            let predicate = match Predicate::compile(&text) {
                Ok(predicate) => predicate.expect("it is not empty"),
                // Longer than an expression may be, or it names the value too often.
                Err(status) if status.message().contains("more than") => return Ok(()),
                Err(status) if status.message().contains("for every key") => {
                    failing.set(failing.get() + 1);
                    prop_assert!(truth.value(item).is_err(), "{}: {}", text, status);
                    return Ok(());
                }
                Err(status) => return Err(TestCaseError::fail(format!("{text}: {status}"))),
            };
            match (predicate.holds(item), truth.value(item)) {
                (Ok(holds), Ok(expected)) => {
                    holding.set(holding.get() + u32::from(holds));
                    prop_assert_eq!(holds, expected, "{}", text);
                }
                (Err(status), Err(NoValue)) => {
                    failing.set(failing.get() + 1);
                    prop_assert_eq!(status.code(), tonic::Code::InvalidArgument);
                }
                other => prop_assert!(false, "{}: {:?}", text, other),
            }
            Ok(())
        });
        outcome.expect("both agree");
        let (holding, failing) = (holding.get(), failing.get());
        assert!(holding > 100 && failing > 25, "{holding} hold, and {failing} fail, of 500");
    });
}

#[test]
fn whatever_is_no_expression_is_an_invalid_argument() {
    with_stack(|| {
        let words = prop::sample::select(vec![
            "key",
            "value",
            "size",
            "version",
            "(",
            ")",
            "[",
            "]",
            "{",
            "}",
            ".",
            ",",
            "?",
            ":",
            "+",
            "-",
            "*",
            "/",
            "%",
            "!",
            "<",
            "==",
            "&&",
            "||",
            "in",
            "0",
            "1u",
            "2.5",
            "1e999",
            "'a'",
            "b'\\xff'",
            "r'\\'",
            "true",
            "null",
            "size(",
            "string(",
            "int(",
            "uint(",
            "double(",
            "bytes(",
            "type(",
            "dyn(",
            "duration(",
            "timestamp(",
            "matches(",
            "has(",
            "all(",
            "x",
            "9223372036854775808",
            "'\\u0000'",
            "\u{1d11e}",
            "'",
            "\\",
            "\n",
            "//",
        ]);
        let cases = (prop::collection::vec(words, 0..12), bytes(), bytes(), any::<u64>());
        let mut runner = TestRunner::new(Config { cases: 1000, ..Config::default() });
        let outcome = runner.run(&cases, |(words, key, value, version)| {
            let (text, item) = (words.join(" "), Item { key: &key, value: &value, version });
            let holds = match Predicate::compile(&text) {
                Ok(Some(predicate)) => predicate.holds(item).map(drop),
                Ok(None) => Ok(()),
                Err(status) => {
                    if status.message().contains("for every key") {
                        let compiled = environment().compile(&text).expect("it parsed before");
                        prop_assert!(Predicate(compiled).holds(item).is_err(), "{}", text);
                    }
                    Err(status)
                }
            };
            if let Err(status) = holds {
                prop_assert_eq!(status.code(), tonic::Code::InvalidArgument);
            }
            Ok(())
        });
        outcome.expect("nothing panics");
    });
}
