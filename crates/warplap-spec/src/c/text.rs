//! The C that is written here: the door through which every kernel is called in one way, and the program that tries a
//! kernel out.

use std::path::Path;

use warplap::DType;
use warplap::core::space::Value;

use crate::argument::{Argument, Element, Role};

/// The door's name in a built library.
pub(crate) const DOOR: &str = "warplap_call";

/// A file that includes the user's source and adds the door: pointers come in a list, numbers are written here. The
/// call goes through a volatile pointer, so that the compiler cannot make a special version for these very numbers.
pub(crate) fn door(source: &Path, entry: &str, arguments: &[Argument]) -> String {
    let mut at = 0;
    let mut given = |argument: &Argument| match &argument.value {
        Some(value) => format!("({}){}", argument.element.c_name(), literal(argument, value)),
        None => {
            at += 1;
            format!("({}*)at[{}]", argument.element.c_name(), at - 1)
        }
    };
    let list: Vec<String> = arguments.iter().map(&mut given).collect();
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

/// What the trial program ends with when all went well: a kernel that ends the process itself does not know it.
pub(crate) const PASSED: i32 = 42;
/// What it ends with when it could not even begin.
pub(crate) const HINDERED: i32 = 97;

/// A program that loads a library and calls its door twice, on buffers with forbidden memory on both sides: whoever
/// reads or writes past an end dies here and not in the tuner.
pub(crate) fn trial(arguments: &[Argument]) -> String {
    let buffers: Vec<&Argument> = arguments.iter().filter(|a| a.role != Role::Scalar).collect();
    let sizes: Vec<String> = buffers.iter().map(|a| (a.len() * a.dtype().bytes()).to_string()).collect();
    let filled: Vec<&str> = buffers.iter().map(|a| if a.is_input() { "1" } else { "0" }).collect();
    format!(
        r#"#define _DEFAULT_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#ifndef MAP_ANONYMOUS
#define MAP_ANONYMOUS MAP_ANON
#endif
#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif
static const size_t bytes[] = {{{}}};
static const int filled[] = {{{}}};
enum {{ buffers = sizeof(bytes) / sizeof(bytes[0]) }};
enum {{ fence = 16 << 20 }};
static void stop(const char *why) {{ fprintf(stderr, "%s\n", why); _exit({HINDERED}); }}
static void *room(size_t wanted) {{
  size_t page = (size_t)sysconf(_SC_PAGESIZE), padded = (wanted + 63) / 64 * 64, whole = (padded + page - 1) / page * page;
  char *at = mmap(0, whole + 2 * fence, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED || mprotect(at + fence, whole, PROT_READ | PROT_WRITE)) stop("no memory");
  return at + fence + whole - padded;
}}
int main(int count, char **words) {{
  void *at[buffers], *library, *found;
  void (*door)(void *const *);
  FILE *content;
  if (count != 3) stop("usage: trial LIBRARY CONTENT");
  content = fopen(words[2], "rb");
  if (!content) stop("no content");
  for (int i = 0; i < buffers; i++) {{
    at[i] = room(bytes[i]);
    if (filled[i] && fread(at[i], 1, bytes[i], content) != bytes[i]) stop("the content ends early");
  }}
  library = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
  if (!library) stop(dlerror());
  found = dlsym(library, "{DOOR}");
  if (!found) stop("no door");
  memcpy(&door, &found, sizeof door);
  for (int run = 0; run < 2; run++) door(at);
  _exit({PASSED});
}}
"#,
        sizes.join(", "),
        filled.join(", "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::argument::Fill;

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
        let text = door(Path::new("/tmp/a b.c"), "f", &arguments);
        assert!(text.contains("#include \"/tmp/a b.c\""), "{text}");
        let call = "((float*)at[0], (long long)(-5LL), (double)(5.00000000000000000e-1), (float*)at[1])";
        assert!(text.contains(call), "{text}");
    }
}
