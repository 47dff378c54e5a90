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

use cel::common::ast::{EntryExpr, Expr, operators};
use cel::common::types::{CelBytes, CelInt, CelString};
use cel::common::value::CowVal;
use cel::context::VariableResolver;
use cel::{Context, Env, ExecutionError, IdedExpr, Program, Value};
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
/// What the environment has: `f(x)`, and `x.f(y)`.
const FUNCTIONS: [&str; 9] =
    ["bool", "bytes", "double", "dyn", "int", "size", "string", "type", "uint"];
const METHODS: [&str; 4] = ["contains", "endsWith", "size", "startsWith"];
const NUMBERS: [&str; 3] = ["double", "int", "uint"];

/// Made up, to try an expression on: a key may be a string, or bytes.
const TRIALS: [Item<'static>; 2] =
    [Item { key: b"0", value: b"0", version: 1 }, Item { key: b"\xff", value: b"0", version: 1 }];

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
        if let Some(name) = missing_function(program.expression()) {
            return Err(Status::invalid_argument(format!(
                "the predicate calls '{name}', which is not there: there are {}, and of a string .{}",
                FUNCTIONS.join(", "),
                METHODS.join(", .")
            )));
        }
        for name in ["key", "value"] {
            if mentions(program.expression(), name) > MENTIONS_MAX {
                return Err(Status::invalid_argument(format!(
                    "the predicate names '{name}' more than {MENTIONS_MAX} times"
                )));
            }
        }
        if let Some(what) = fault(program.expression()) {
            let what = format!("the predicate fails for every key: {what}");
            return Err(Status::invalid_argument(what));
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
            Ok(other) => Err(failed(no_truth(&other))),
            Err(error) => Err(failed(shortened(&error))),
        }
    }
}

fn no_truth(value: &Value) -> String {
    format!("it is a {}, not a bool", value.type_of())
}

/// The interpreter's messages repeat the values: those can be long.
fn shortened(error: &ExecutionError) -> String {
    error.to_string().chars().take(200).collect()
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
    all(expression).filter(|part| matches!(part, Expr::Ident(other) if other == name)).count()
}

/// A function that an expression calls, and the environment does not have.
fn missing_function(expression: &IdedExpr) -> Option<&str> {
    all(expression).find_map(|part| {
        let Expr::Call(call) = part else { return None };
        let name = call.func_name.trim_start_matches('.');
        let known = if call.target.is_some() { &METHODS[..] } else { &FUNCTIONS };
        // Operators are calls of names that nobody can write.
        let is_operator = !name.chars().all(|char| char.is_ascii_alphanumeric() || char == '_');
        (!is_operator && !known.contains(&name)).then_some(name)
    })
}

/// Why an expression is true or false of no item whatever, where that can be told without one.
fn fault(expression: &IdedExpr) -> Option<String> {
    if let Expr::Call(call) = &expression.expr {
        let both = |left, right| fault(left).and_then(|what| fault(right).map(|_| what));
        match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::LOGICAL_NOT, [of]) => return fault(of),
            // What one side lacks the other one may make up for.
            (operators::LOGICAL_AND | operators::LOGICAL_OR, [left, right]) => {
                return both(left, right);
            }
            (operators::CONDITIONAL, [asked, left, right]) => {
                return fault(asked).or_else(|| both(left, right));
            }
            _ => {}
        }
    }
    if !has_fixed_types(expression) {
        return None;
    }
    let [text, bytes] = TRIALS.map(|item| mistyped(expression, item));
    bytes.and(text)
}

/// Whether the types of all that is evaluated follow from those of key and value: nothing is
/// left out, and nothing taken out of a list or a map, by what they are.
fn has_fixed_types(expression: &IdedExpr) -> bool {
    let has = |which: fn(&Expr) -> bool| all(expression).any(which);
    let chooses = |part: &Expr| {
        let Expr::Call(call) = part else { return false };
        let name = call.func_name.as_str();
        [operators::LOGICAL_AND, operators::LOGICAL_OR, operators::CONDITIONAL].contains(&name)
    };
    let takes = |part: &Expr| match part {
        Expr::Call(call) => call.func_name == operators::INDEX,
        other => matches!(other, Expr::Select(_)),
    };
    let holds = |part: &Expr| matches!(part, Expr::List(_) | Expr::Map(_) | Expr::Struct(_));
    !(has(chooses) || has(takes) && has(holds))
}

/// What an item shows to be wrong with the types of an expression that has the same ones for others.
fn mistyped(expression: &IdedExpr, item: Item<'_>) -> Option<String> {
    let mut context = Context::with_env(Arc::clone(environment()));
    context.set_variable_resolver(&item);
    match context.resolve(expression) {
        Ok(Value::Bool(_)) => None,
        Ok(other) => Some(no_truth(&other)),
        // NaN, which not all items need give, is what compares with no number.
        Err(ExecutionError::NoSuchOverload(error))
            if error.argument_types().iter().all(|name| NUMBERS.contains(&name.as_str())) =>
        {
            None
        }
        Err(
            error @ (ExecutionError::NoSuchOverload(_)
            | ExecutionError::UnsupportedBinaryOperator(..)),
        ) => Some(shortened(&error)),
        Err(_) => None,
    }
}

/// An expression and all that is in it.
fn all(expression: &IdedExpr) -> impl Iterator<Item = &Expr> {
    let mut left = vec![expression];
    std::iter::from_fn(move || {
        let expression = &left.pop()?.expr;
        match expression {
            Expr::Call(call) => left.extend(call.target.as_deref().into_iter().chain(&call.args)),
            Expr::List(list) => left.extend(&list.elements),
            Expr::Map(map) => left.extend(map.entries.iter().flat_map(|entry| parts(&entry.expr))),
            Expr::Struct(made) => {
                left.extend(made.entries.iter().flat_map(|entry| parts(&entry.expr)));
            }
            Expr::Select(select) => left.push(&select.operand),
            // Only a macro makes a comprehension.
            Expr::Ident(_) | Expr::Comprehension(_) | Expr::Literal(_) | Expr::Unspecified => {}
        }
        Some(expression)
    })
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
                ("nope(key)", "calls 'nope', which is not there: there are bool, bytes, "),
                ("key.matches('u')", "calls 'matches', which is not there"),
                ("true || value.nope()", "calls 'nope'"),
                ("key.int() == 1", "calls 'int'"),
                ("has(key)", "calls 'has'"),
                ("size", "every key: it is a int, not a bool"),
                ("1 + 1", "every key: it is a int, not a bool"),
                ("string", "every key: it is a string, not a bool"),
                ("size > 4 ? key : 'x'", "every key: it is a string, not a bool"),
                ("key && size", "every key: it is a string, not a bool"),
                ("!(key || size)", "every key: it is a string, not a bool"),
                ("1 / (size - 5) == 1", "fails for key 'user/1': Division by zero"),
                ("key + 1 == ''", "fails for every key: Unsupported binary operator 'add'"),
                ("value < 'x'", "fails for every key: "),
                ("value.startsWith('x')", "fails for every key: "),
                ("value.name == 'x'", "fails for every key: "),
                ("value[0] == 1", "fails for every key: "),
                ("!size", "fails for every key: "),
                // Of some items they would be true.
                ("key < b'x'", "fails for key 'user/1'"),
                ("size > 5 || key + 1 == 3", "fails for key 'user/1'"),
                ("[true, 1][size - 4]", "fails for key 'user/1'"),
                ("double(version - 7) / 0.0 > 1.0", "fails for key 'user/1'"),
                (&many, "names 'value' more than 8 times"),
                (&" ".repeat(1025), "has 1025 bytes, more than 1024"),
            ] {
                let error = evaluate(expression).expect_err(expression);
                assert!(error.contains(message), "{expression}: {error}");
            }
        });
    }

    #[test]
    fn the_functions_that_are_named_are_those_that_are_there() {
        with_stack(|| {
            let tell = |expression: String| {
                let program = environment().compile(&expression).expect("it parses");
                let context = Context::with_env(Arc::clone(environment()));
                program.execute(&context).expect_err("none takes that many").to_string()
            };
            for name in ["matches", "has", "duration", "getHours"].iter().chain(&TYPES) {
                let undeclared = tell(format!("{name}(1, 2, 3)")).contains("Undeclared");
                assert_eq!(undeclared, !FUNCTIONS.contains(name), "{name}");
            }
            for name in ["matches", "getHours", "value", "or"].iter().chain(&TYPES) {
                let undeclared = tell(format!("''.{name}(1, 2, 3)")).contains("Undeclared");
                assert_eq!(undeclared, !METHODS.contains(name), "{name}");
            }
            for name in FUNCTIONS {
                assert!(!tell(format!("{name}(1, 2, 3)")).contains("Undeclared"), "{name}");
            }
            for name in METHODS {
                assert!(!tell(format!("''.{name}(1, 2, 3)")).contains("Undeclared"), "{name}");
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
