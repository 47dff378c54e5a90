//! Predicates of scans: expressions of the Common Expression Language (CEL).
//!
//! The interpreter has no limits, so this module sets some. Expressions have no loops, because the environment has no
//! macros, and no regular expressions. The length of an expression is limited, and so are its mentions of the
//! value: a concatenation is at most a multiple of the value. Parser and interpreter recurse, and need [`STACK_BYTES`].

use std::sync::{Arc, OnceLock};

use cel::common::types::{CelBytes, CelInt, CelString};
use cel::common::value::CowVal;
use cel::context::VariableResolver;
use cel::{Context, Env, Program, Value};
use tonic::Status;

use knee_kv_cache::engine::Version;

const EXPRESSION_BYTES_MAX: usize = 1024;
/// Largest number of occurrences of `value` in the text of an expression.
const MENTIONS_MAX: usize = 8;
/// Twice the stack that the deepest expression takes in a build without optimisation.
pub(super) const STACK_BYTES: usize = 64 << 20;
/// Error messages of the interpreter repeat values; they are cut here.
const ERROR_CHARS_MAX: usize = 200;

/// An expression, compiled once for a scan.
#[derive(Debug)]
pub(super) struct Predicate(Program);

/// A version of a key, as the input of an expression.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item<'a> {
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
    pub(super) version: Version,
}

impl Predicate {
    /// Compiles an expression; `None` for an empty one.
    pub(super) fn compile(expression: &str) -> Result<Option<Predicate>, Status> {
        if expression.is_empty() {
            return Ok(None);
        }
        let bytes = expression.len();
        if bytes > EXPRESSION_BYTES_MAX {
            return Err(Status::invalid_argument(format!(
                "the predicate has {bytes} bytes, more than {EXPRESSION_BYTES_MAX}"
            )));
        }
        if expression.matches("value").count() > MENTIONS_MAX {
            return Err(Status::invalid_argument(format!(
                "the predicate names 'value' more than {MENTIONS_MAX} times"
            )));
        }
        let program = environment().compile(expression).map_err(|errors| {
            Status::invalid_argument(format!("the predicate does not parse: {errors}"))
        })?;
        Ok(Some(Predicate(program)))
    }

    pub(super) fn holds(&self, item: Item<'_>) -> Result<bool, Status> {
        let mut context = Context::with_env(Arc::clone(environment()));
        context.set_variable_resolver(&item);
        let why = match self.0.execute(&context) {
            Ok(Value::Bool(holds)) => return Ok(holds),
            Ok(other) => format!("its type is {}, not bool", other.type_of()),
            Err(error) => error.to_string().chars().take(ERROR_CHARS_MAX).collect(),
        };
        let key = item.key.escape_ascii();
        Err(Status::invalid_argument(format!("the predicate fails for key '{key}': {why}")))
    }
}

impl VariableResolver for Item<'_> {
    fn resolve<'b>(&'b self, variable: &str) -> Option<CowVal<'b, 'b>> {
        let int = |number: u64| CelInt::from(i64::try_from(number).unwrap_or(i64::MAX));
        Some(match variable {
            "key" => match std::str::from_utf8(self.key) {
                Ok(key) => CowVal::owned(CelString::from(key)),
                Err(_) => CowVal::owned(CelBytes::from(self.key)),
            },
            "value" => CowVal::owned(CelBytes::from(self.value)),
            "size" => CowVal::owned(int(self.value.len() as u64)),
            "version" => CowVal::owned(int(self.version)),
            _ => return None,
        })
    }
}

/// The standard's types, operators and functions, without its macros.
fn environment() -> &'static Arc<Env> {
    static ENVIRONMENT: OnceLock<Arc<Env>> = OnceLock::new();
    ENVIRONMENT.get_or_init(|| Arc::new(Env::default().with_optional_support(false).with_stdlib()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ITEM: Item<'static> = Item { key: b"user/1", value: b"hello", version: 7 };

    /// Runs a test on a thread like those of the runtime.
    fn with_stack(run: impl FnOnce() + Send + 'static) {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(run);
        thread.expect("a thread").join().expect("no panic");
    }

    fn evaluate(expression: &str) -> Result<bool, String> {
        let predicate = Predicate::compile(expression).map_err(|s| s.message().to_owned())?;
        let predicate = predicate.expect("a predicate");
        predicate.holds(ITEM).map_err(|status| status.message().to_owned())
    }

    #[test]
    fn predicate_sees_key_value_size_and_version() {
        with_stack(|| {
            for (expression, holds) in [
                ("key.startsWith('user/') && size == 5", true),
                ("key < 'user/1'", false),
                ("size(key) == 6 && version == 7", true),
                ("string(value).contains('ell')", true),
                ("value == b'hello'", true),
                ("type(key) == string && type(value) == bytes", true),
                ("key in ['user/1', 'user/2']", true),
            ] {
                assert_eq!(evaluate(expression), Ok(holds), "{expression}");
            }
            let other = Item { key: b"\xff", ..ITEM };
            let predicate = Predicate::compile("type(key) == bytes").expect("it parses");
            assert!(predicate.expect("not empty").holds(other).expect("it evaluates"));
        });
    }

    #[test]
    fn predicate_that_fails_is_refused_with_the_reason() {
        with_stack(|| {
            let many = ["value"; 9].join("+") + " == value";
            for (expression, message) in [
                ("size +", "does not parse: ERROR: <input>:1:7"),
                ("nope > 1", "fails for key 'user/1': "),
                ("[1].all(x, x > 0)", "fails for key 'user/1': "),
                ("key.matches('u')", "fails for key 'user/1': "),
                ("size", "fails for key 'user/1': its type is int, not bool"),
                ("1 / (size - 5) == 1", "fails for key 'user/1': Division by zero"),
                (&many, "names 'value' more than 8 times"),
                (&" ".repeat(1025), "has 1025 bytes, more than 1024"),
            ] {
                let error = evaluate(expression).expect_err(expression);
                assert!(error.contains(message), "{expression}: {error}");
            }
        });
    }

    /// A stack overflow would end the process, and so fail this test.
    #[test]
    fn deepest_predicate_fits_the_stack() {
        with_stack(|| {
            for (front, middle, back) in [
                ("(", "true", ")"),
                ("!", "true", ""),
                ("- ", "1", ""),
                ("", "1", "+1"),
                ("", "true", "?true:true"),
                ("", "key", ".a"),
                ("", "key", "[0]"),
                ("[", "1", "]"),
                ("{1:", "1", "}"),
                ("[", "", ""),
                ("size(", "key", ")"),
                ("true&&(", "true", ")"),
                ("", "key", ".f(1)"),
                ("((", "1", "+1)+1)"),
            ] {
                let times = (EXPRESSION_BYTES_MAX - middle.len()) / (front.len() + back.len());
                let _ = evaluate(&(front.repeat(times) + middle + &back.repeat(times)));
            }
            // The parser's deepest brackets, around the longest sum.
            let _ = evaluate(&("(".repeat(90) + "1" + &"+1".repeat(400) + &")".repeat(90)));
        });
    }
}
