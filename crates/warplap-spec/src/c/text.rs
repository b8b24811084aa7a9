//! The C that is written here: the door through which every kernel is called in one way.

use std::path::Path;

use warplap::DType;
use warplap::core::space::Value;

use crate::argument::{Argument, Element};

/// The door's name in a built library.
pub(crate) const DOOR: &str = "warplap_call";

/// A file that includes the user's source and adds the door: pointers come in a list, numbers are written here. The
/// call goes through a volatile pointer, so that the compiler cannot make a special version for these very numbers.
pub(crate) fn entry_source(source: &Path, entry: &str, arguments: &[Argument]) -> String {
    let mut at = 0;
    let mut inputs = |argument: &Argument| match &argument.value {
        Some(value) => format!("({}){}", argument.element.c_name(), literal(argument, value)),
        None => {
            at += 1;
            format!("({}*)at[{}]", argument.element.c_name(), at - 1)
        }
    };
    let list: Vec<String> = arguments.iter().map(&mut inputs).collect();
    let path = source.to_string_lossy().replace('\\', "\\\\").replace('"', "\\\"");
    format!(
        "#include \"{path}\"\n\
         void {DOOR}(void *const *at) {{\n\
         \x20 static __typeof__({entry}) *volatile entry_of_kernel = {entry};\n\
         \x20 entry_of_kernel({});\n\
         \x20 (void)at;\n\
         }}\n",
        list.join(", ")
    )
}

fn literal(argument: &Argument, value: &Value) -> String {
    let number = argument.number();
    match (argument.element, value) {
        (Element::Stored(DType::I64), Value::Int(i)) => format!("({i}LL)"),
        (Element::Stored(DType::I32 | DType::I64), _) => format!("({number:.0})"),
        // Hexadecimal would be exact too; seventeen digits are, and can be read.
        _ => format!("({number:.17e})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::argument::{Fill, Role};

    #[test]
    fn the_door_hands_pointers_in_order_and_numbers_by_value() {
        let buffer = |name: &str, role| Argument {
            name: name.into(),
            element: Element::Stored(DType::F32),
            role,
            shape: vec![4],
            fill: Fill::Random,
            value: None,
        };
        let number =
            |element, value| Argument { element, value: Some(value), shape: vec![], ..buffer("n", Role::Scalar) };
        let arguments = [
            buffer("x", Role::In),
            number(Element::Stored(DType::I64), Value::Int(-5)),
            number(Element::Stored(DType::F64), Value::from(0.5)),
            buffer("y", Role::Out),
        ];
        let text = entry_source(Path::new("/tmp/a b.c"), "f", &arguments);
        assert!(text.contains("#include \"/tmp/a b.c\""), "{text}");
        let call = "((float*)at[0], (long long)(-5LL), (double)(5.00000000000000000e-1), (float*)at[1])";
        assert!(text.contains(call), "{text}");
    }
}
