//! `docs/operations.md` is what the operations declare: with `WARPLAP_WRITE_DOCS=1` it is written anew.

use std::fmt::Write;
use std::path::Path;

use warplap_core::problem::Problem;
use warplap_core::slot::Role;
use warplap_ops::registry::{self, Known, Visitor};

const HEAD: &str = "# Operations
Written from what each operation declares (`crates/warplap-ops/src/<operation>/op.rs`); a test holds it to that. A
problem is `operation:field=value,…`; a field without a default is required. A size is a whole number from 1 to 1048576.
";

struct Page(String);

impl Visitor for Page {
    fn visit<O: Known>(&mut self) {
        let problem = O::parse(O::EXAMPLE).unwrap_or_else(|e| panic!("{}: {e}", O::EXAMPLE));
        let names: String = O::ALIASES.iter().map(|alias| format!(", `{alias}`")).collect();
        let of = O::GRADIENT_OF.map_or(String::new(), |of| format!(" The gradient of `{of}`."));
        let _ = writeln!(self.0, "\n## `{}`{names}\n{}{of} For example `{}`.\n", O::NAME, O::LINE, O::EXAMPLE);
        let _ = writeln!(self.0, "| field | may be | else | |\n|---|---|---|---|");
        let table = problem.table();
        for name in O::Problem::FIELDS {
            let field = table.iter().find(|field| field.name == *name);
            let field = field.unwrap_or_else(|| panic!("{}: the table has no {name}", O::NAME));
            assert!(!field.doc.is_empty() && !field.allowed.is_empty(), "{}: {name} says nothing", O::NAME);
            let allowed = if field.kind == "size" { "a size" } else { &field.allowed };
            let default = field.default.as_ref().map_or(String::new(), |default| format!("`{default}`"));
            let _ = writeln!(self.0, "| `{name}` | {allowed} | {default} | {} |", field.doc.replace('|', "\\|"));
        }
        let signature = O::signature(&problem);
        let slots = signature.slots().iter().map(|slot| {
            let how = match slot.role {
                Role::In => "",
                Role::Out => " (out)",
                Role::InOut => " (in place)",
                Role::Scalar => " (a number)",
            };
            format!("`{}`{how}", slot.name)
        });
        let slots: Vec<String> = slots.collect();
        let _ = writeln!(self.0, "\nSlots, in order: {}.", slots.join(", "));
    }
}

#[test]
fn the_page_of_operations_is_what_they_declare() {
    let mut page = Page(HEAD.to_string());
    registry::each(&mut page);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations.md");
    if std::env::var_os("WARPLAP_WRITE_DOCS").is_some() {
        std::fs::write(&file, page.0).expect("a file to write");
        return;
    }
    let kept = std::fs::read_to_string(&file).expect("docs/operations.md");
    assert!(
        kept == page.0,
        "docs/operations.md: write it anew with WARPLAP_WRITE_DOCS=1 cargo test -p warplap-ops --test docs"
    );
}
