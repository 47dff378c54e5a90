//! Which keys a scan shows: an expression of the Common Expression Language (CEL).
//!
//! The interpreter has no budget, so the expression is held to what bounds one: no loops (the macros
//! are left out), no regular expressions (each evaluation would compile them), a limited length, and
//! a limited number of places that name the key or the value, so that no sum of them grows beyond
//! a multiple of the value. Parser and interpreter recurse by the expression: they want the
//! [`STACK_BYTES`] that a thread of the runtime has.

#[cfg(test)]
mod differential;

use std::sync::{Arc, OnceLock};

use cel::common::ast::{EntryExpr, Expr};
use cel::common::types::{CelBytes, CelInt, CelString};
use cel::common::value::CowVal;
use cel::context::VariableResolver;
use cel::{Context, Env, IdedExpr, Program, Value};
use tonic::Status;

use crate::engine::Version;

/// Longest expression, in bytes.
const EXPRESSION_BYTES_MAX: usize = 1024;
/// How often an expression may name the key, and the value.
const MENTIONS_MAX: usize = 8;
/// What the deepest expression takes without optimisation, twice.
pub(super) const STACK_BYTES: usize = 64 << 20;

const VARIABLES: [&str; 4] = ["key", "value", "size", "version"];
/// Names that the language gives a meaning: what `type(x)` is compared with.
const TYPES: [&str; 10] =
    ["bool", "bytes", "double", "dyn", "int", "list", "map", "null_type", "string", "uint"];

/// An expression, compiled once for a scan.
#[derive(Debug)]
pub(super) struct Predicate(Program);

/// A key in one of its versions, as an expression sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item<'a> {
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
    pub(super) version: Version,
}

impl Predicate {
    /// Compiles an expression; an empty one is none.
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
        let program = environment().compile(expression).map_err(|errors| {
            Status::invalid_argument(format!("the predicate does not parse: {errors}"))
        })?;
        let references = program.references();
        let known = |name: &&str| !VARIABLES.contains(name) && !TYPES.contains(name);
        if let Some(name) = references.variables().into_iter().find(known) {
            return Err(Status::invalid_argument(format!(
                "the predicate names '{name}': there are key, value, size and version, and no macros"
            )));
        }
        for name in ["key", "value"] {
            if mentions(program.expression(), name) > MENTIONS_MAX {
                return Err(Status::invalid_argument(format!(
                    "the predicate names '{name}' more than {MENTIONS_MAX} times"
                )));
            }
        }
        Ok(Some(Predicate(program)))
    }

    /// Whether it holds for an item.
    pub(super) fn holds(&self, item: Item<'_>) -> Result<bool, Status> {
        let mut context = Context::with_env(Arc::clone(environment()));
        context.set_variable_resolver(&item);
        let failed = |what: String| {
            let key = item.key.escape_ascii();
            Status::invalid_argument(format!("the predicate fails for key '{key}': {what}"))
        };
        match self.0.execute(&context) {
            Ok(Value::Bool(holds)) => Ok(holds),
            Ok(other) => Err(failed(format!("it is a {}, not a bool", other.type_of()))),
            // The interpreter's messages repeat the values: those can be long.
            Err(error) => Err(failed(error.to_string().chars().take(200).collect())),
        }
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

/// How often an expression names a variable.
fn mentions(expression: &IdedExpr, name: &str) -> usize {
    let mut mentions = 0;
    let mut left = vec![expression];
    while let Some(expression) = left.pop() {
        match &expression.expr {
            Expr::Ident(other) => mentions += usize::from(other == name),
            Expr::Call(call) => left.extend(call.target.as_deref().into_iter().chain(&call.args)),
            Expr::List(list) => left.extend(&list.elements),
            Expr::Map(map) => left.extend(map.entries.iter().flat_map(|entry| parts(&entry.expr))),
            Expr::Struct(made) => {
                left.extend(made.entries.iter().flat_map(|entry| parts(&entry.expr)));
            }
            Expr::Select(select) => left.push(&select.operand),
            // Only a macro makes one.
            Expr::Comprehension(_) | Expr::Literal(_) | Expr::Unspecified => {}
        }
    }
    mentions
}

fn parts(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
        EntryExpr::StructField(field) => vec![&field.value],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ITEM: Item<'static> = Item { key: b"user/1", value: b"hello", version: 7 };

    /// On a thread like those of the runtime.
    fn with_stack(run: impl FnOnce() + Send + 'static) {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(run);
        thread.expect("a thread").join().expect("it does not panic");
    }

    fn evaluate(expression: &str) -> Result<bool, String> {
        let predicate = Predicate::compile(expression).map_err(|s| s.message().to_owned())?;
        let predicate = predicate.expect("it is not empty");
        predicate.holds(ITEM).map_err(|status| status.message().to_owned())
    }

    #[test]
    fn expressions_see_key_value_size_and_version() {
        with_stack(|| {
            for (expression, holds) in [
                ("key.startsWith('user/') && size == 5", true),
                ("key < 'user/1'", false),
                ("size(key) == 6 && version == 7", true),
                ("string(value).contains('ell')", true),
                ("value == b'hello'", true),
                ("type(key) == string && type(value) == bytes", true),
                ("key in ['user/1', 'user/2']", true),
                // An error on one side of a disjunction is none where the other side decides.
                ("key == 1 || size > 4", true),
            ] {
                assert_eq!(evaluate(expression), Ok(holds), "{expression}");
            }
            let other = Item { key: b"\xff", ..ITEM };
            let predicate = Predicate::compile("type(key) == bytes").expect("it parses");
            assert!(predicate.expect("not empty").holds(other).expect("it evaluates"));
        });
    }

    #[test]
    fn what_is_wrong_is_said() {
        with_stack(|| {
            let many = ["value"; 9].join("+") + " == value";
            for (expression, message) in [
                ("size +", "does not parse: ERROR: <input>:1:7"),
                ("nope > 1", "names 'nope'"),
                ("[1].all(x, x > 0)", "names 'x'"),
                ("nope(key)", "Undeclared reference to 'nope'"),
                ("key.matches('u')", "Undeclared reference to 'matches'"),
                ("size", "it is a int, not a bool"),
                ("1 / (size - 5) == 1", "Division by zero"),
                ("key + 1 == ''", "fails for key 'user/1'"),
                (&many, "names 'value' more than 8 times"),
                (&" ".repeat(1025), "has 1025 bytes, more than 1024"),
            ] {
                let error = evaluate(expression).expect_err(expression);
                assert!(error.contains(message), "{expression}: {error}");
            }
        });
    }

    /// What overflows the stack ends the process, and this test with it.
    #[test]
    fn no_expression_is_too_deep() {
        with_stack(|| {
            let deepest = |front: &str, middle: &str, back: &str| {
                let times = (EXPRESSION_BYTES_MAX - middle.len()) / (front.len() + back.len());
                front.repeat(times) + middle + &back.repeat(times)
            };
            for (front, middle, back) in [
                ("(", "true", ")"),
                ("!", "true", ""),
                ("- ", "1", ""),
                ("", "1", "+1"),
                ("", "true", "&&true"),
                ("", "true", "?true:true"),
                ("", "key", ".a"),
                ("", "key", "[0]"),
                ("[", "1", "]"),
                ("{1:", "1", "}"),
                ("[", "", ""),
                ("{1:", "", ""),
                ("size(", "key", ")"),
                ("1+(", "1", ")"),
                ("true&&(", "true", ")"),
                ("", "key", ".f(1)"),
                ("((", "1", "+1)+1)"),
            ] {
                let expression = deepest(front, middle, back);
                assert!(expression.len() <= EXPRESSION_BYTES_MAX);
                let _ = evaluate(&expression);
            }
            // As deep as the parser lets brackets be, and then a sum as long as there is room for.
            let brackets = "(".repeat(90) + "1" + &"+1".repeat(400) + &")".repeat(90);
            let _ = evaluate(&brackets);
        });
    }
}
