//! A user's own source: text, headers and options come in; an order for the compiler goes out.

use warplap_worker::CompileOrder;

use crate::libraries::finder::toolkit_headers;

/// A kernel that came with a user's spec: its text and options are known only at run time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnSource {
    /// The entry's name.
    pub entry: String,
    /// The text.
    pub text: String,
    /// What it may include by name, besides the toolkit's own headers.
    pub headers: Vec<(String, String)>,
    /// The user's options and the axes as `-D`.
    pub options: Vec<String>,
}

impl OwnSource {
    pub(crate) fn order(&self, arch: &str) -> CompileOrder {
        let mut options = ["-Xptxas", "-v"].map(String::from).to_vec();
        options.push(format!("-arch={arch}"));
        let defines = |option: &&String| define(option).is_some();
        options.extend(self.options.iter().filter(|o| !defines(o)).cloned());
        options.extend(toolkit_headers().iter().map(|folder| format!("-I{}", folder.display())));
        let defines: String = self.options.iter().filter_map(|o| define(o)).collect();
        CompileOrder {
            name: format!("{}.cu", self.entry),
            text: self.laid_out(&defines),
            headers: self.headers.clone(),
            options,
        }
    }

    /// The text with the constants behind the system's headers, which have members and templates of such names, and
    /// with the entry under its plain name, to which C++ would add the parameters' types. Lines keep their numbers.
    fn laid_out(&self, defines: &str) -> String {
        let Preamble { system, included } = Preamble::of(&self.text);
        let from = |lines: usize, at: usize| format!("#line {}\n{}", lines + 1, &self.text[at..]);
        let (head, rest) = (&self.text[..system.bytes], from(system.lines, system.bytes));
        if self.text.contains("extern \"C\"") {
            return format!("{head}{defines}{rest}");
        }
        let own = &self.text[system.bytes..included.bytes];
        let body = from(included.lines, included.bytes);
        format!("{head}{defines}#line {}\n{own}extern \"C\" {{\n{body}\n}}\n", system.lines + 1)
    }
}

/// How far into a text something reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reach {
    bytes: usize,
    lines: usize,
}

/// Where a text's head ends.
#[derive(Debug, Default, PartialEq, Eq)]
struct Preamble {
    /// Behind the last `#include <…>` that nothing but such lines, comments and empty ones stand before.
    system: Reach,
    /// Behind the last `#include` that stands under no condition: not before `system`.
    included: Reach,
}

impl Preamble {
    fn of(text: &str) -> Self {
        let (mut result, mut depth, mut at, mut leading) = (Preamble::default(), 0usize, 0, true);
        for (number, line) in text.split_inclusive('\n').enumerate() {
            at += line.len();
            let reach = Reach { bytes: at, lines: number + 1 };
            let plain = line.trim();
            let Some(word) = plain.strip_prefix('#').map(str::trim_start) else {
                leading &= plain.is_empty() || plain.starts_with("//");
                continue;
            };
            let include = word.strip_prefix("include").filter(|_| depth == 0 && line.ends_with('\n'));
            leading &= include.is_some_and(|what| what.trim_start().starts_with('<'));
            if include.is_some() {
                result.included = reach;
                result.system = if leading { reach } else { result.system };
            } else if word.starts_with("if") {
                depth += 1;
            } else if word.starts_with("endif") {
                depth = depth.saturating_sub(1);
            }
        }
        result
    }
}

/// The line that says what an option `-DNAME=VALUE` says. Given as an option it would reach the declarations that the
/// compiler has of its own, and a constant may well be called `kind` or `size` as members of structures there are.
fn define(option: &str) -> Option<String> {
    let (name, value) = option.strip_prefix("-D").map(|said| said.split_once('=').unwrap_or((said, "1")))?;
    let plain = !name.is_empty() && !value.contains('\n');
    plain.then(|| format!("#define {name} {value}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_constants_are_defined_in_the_text_and_its_lines_keep_their_numbers() {
        let options = ["-DKIND=a + b", "-DFAST", "--use_fast_math", "-D"].map(String::from).to_vec();
        let (entry, text) = ("k".into(), "extern \"C\" __global__ void k() {}".into());
        let source = OwnSource { entry, text, headers: Vec::new(), options };
        let order = source.order("sm_90");
        let head = "#define KIND a + b\n#define FAST 1\n#line 1\n";
        assert_eq!(order.text, format!("{head}{}", source.text));
        assert_eq!(order.options[..5], ["-Xptxas", "-v", "-arch=sm_90", "--use_fast_math", "-D"]);
        let bare = OwnSource { text: "__global__ void k() {}".into(), ..source };
        assert!(
            bare.order("sm_90").text.contains("extern \"C\" {\n#line 1\n__global__"),
            "{}",
            bare.order("sm_90").text
        );
    }

    #[test]
    fn what_a_user_includes_stays_outside_of_the_plain_names_and_the_systems_headers_see_no_constant() {
        let system = "// Mine\n\n#include <cuda_fp16.h>\n";
        let own = "#if FAST\n#include <fast.h>\n#endif\n#include \"tile.h\"\n";
        let rest = "int x;\n#if 1\n#include \"x.h\"\n#endif\n";
        let headers = vec![("tile.h".to_string(), "#define TILE 4\n".to_string())];
        let options = vec!["-DN=8".to_string()];
        let source = OwnSource { entry: "k".into(), text: format!("{system}{own}{rest}"), headers, options };
        let order = source.order("sm_90");
        let expected = format!("{system}#define N 8\n#line 4\n{own}extern \"C\" {{\n#line 8\n{rest}\n}}\n");
        assert_eq!(order.text, expected);
        assert_eq!(order.headers, source.headers);
        let message = OwnSource { text: format!("{system}{own}extern \"C\" int x;"), ..source };
        assert_eq!(message.order("sm_90").text, format!("{system}#define N 8\n#line 4\n{own}extern \"C\" int x;"));
        assert_eq!(Preamble::of("__global__ void k() {}\n#include <a.h>"), Preamble::default());
    }
}
