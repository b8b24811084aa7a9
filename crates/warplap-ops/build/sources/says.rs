//! What one Rust file says of others: modules it declares, names it imports, paths it writes, files it includes.

use std::collections::HashSet;

use super::tokens::Token::{Colons, Mark, Text, Word};
use super::tokens::{Token, tokens};

/// A name that a `use` brings in.
pub(crate) struct Import {
    /// As the file calls it; `*` for everything.
    pub(crate) name: String,
    /// Where it comes from.
    pub(crate) path: Vec<String>,
    /// Whether the file hands it on (`pub use`): then it stands there for others.
    pub(crate) is_door: bool,
}

/// What a file says.
#[derive(Default)]
pub(crate) struct Says {
    pub(crate) children: HashSet<String>,
    pub(crate) imports: Vec<Import>,
    pub(crate) paths: HashSet<Vec<String>>,
    pub(crate) includes: Vec<String>,
    /// Every word outside of `use`.
    pub(crate) words: HashSet<String>,
}

impl Says {
    /// Reads a file's text.
    pub(crate) fn of(text: &str) -> Result<Self, String> {
        let all = tokens(text);
        let (mut says, mut at) = (Says::default(), 0);
        // Where the braces of inline modules close, in braces from the file's top: their `super` is this file.
        let (mut deep, mut inline) = (0usize, Vec::new());
        while at < all.len() {
            match &all[at..] {
                [Word("use"), next, ..] if *next != Mark('<') => {
                    let is_door = at > 0 && matches!(all[at - 1], Word("pub") | Mark(')'));
                    let end = at + all[at..].iter().position(|t| *t == Mark(';')).ok_or("a `use` without an end")?;
                    let mut tree = &all[at + 1..end];
                    while !tree.is_empty() {
                        says.import(&mut tree, &[], (is_door, inline.len()))?;
                        tree = tree.get(1..).unwrap_or(&[]);
                    }
                    at = end;
                }
                [Word("mod"), Word(name), Mark(';'), ..] => {
                    says.children.insert((*name).to_string());
                    at += 2;
                }
                [Word("mod"), Word(_), Mark('{'), ..] => {
                    inline.push(deep);
                    deep += 1;
                    at += 2;
                }
                [Mark('{'), ..] => deep += 1,
                [Mark('}'), ..] => {
                    deep = deep.saturating_sub(1);
                    inline.pop_if(|closed| *closed == deep);
                }
                [Word("include" | "include_str" | "include_bytes"), Mark('!'), _, inside, ..] => match inside {
                    Text(path) => says.includes.push((*path).to_string()),
                    _ => return Err("an `include` of a name that cannot be read here".into()),
                },
                [Word(word), ..] => {
                    says.words.insert((*word).to_string());
                    let path = path(&all[at..]);
                    if path.len() > 1 && !(at > 0 && all[at - 1] == Colons) {
                        says.words.extend(path.iter().map(|w| (*w).to_string()));
                        at += 2 * (path.len() - 1);
                        says.paths.insert(here(path, inline.len()));
                    }
                }
                _ => {}
            }
            at += 1;
        }
        Ok(says)
    }

    /// One branch of a `use` tree; leaves what comes after it.
    fn import(&mut self, tree: &mut &[Token<'_>], before: &[&str], how: (bool, usize)) -> Result<(), String> {
        if let [Colons, rest @ ..] = tree {
            *tree = rest;
        }
        let mut path = before.to_vec();
        let name = loop {
            match tree {
                [Word(word), Colons, rest @ ..] => {
                    path.push(word);
                    *tree = rest;
                }
                [Mark('{'), rest @ ..] => {
                    *tree = rest;
                    while !matches!(tree, [Mark('}'), ..]) {
                        self.import(tree, &path, how)?;
                        if let [Mark(','), rest @ ..] = tree {
                            *tree = rest;
                        }
                    }
                    *tree = &tree[1..];
                    return Ok(());
                }
                [Mark('*'), rest @ ..] => {
                    *tree = rest;
                    break "*";
                }
                [Word(word), rest @ ..] => {
                    *tree = rest;
                    if *word != "self" || path.is_empty() {
                        path.push(word);
                    }
                    let own = path[path.len() - 1];
                    let [Word("as"), Word(other), rest @ ..] = tree else { break own };
                    *tree = rest;
                    break other;
                }
                _ => return Err(format!("a `use` that cannot be read here: {tree:?}")),
            }
        };
        let (is_door, inside) = how;
        self.imports.push(Import { name: name.to_string(), path: here(path, inside), is_door });
        Ok(())
    }
}

/// The path that begins here: `a::b::c`.
fn path<'t>(all: &[Token<'t>]) -> Vec<&'t str> {
    let mut segments = Vec::new();
    let mut rest = all;
    while let [Word(word), after @ ..] = rest {
        segments.push(*word);
        match after {
            [Colons, next @ ..] => rest = next,
            _ => break,
        }
    }
    segments
}

/// A path written so many inline modules deep, as the file itself would write it.
fn here(path: Vec<&str>, inside: usize) -> Vec<String> {
    let up = path.iter().take_while(|w| **w == "super").count().min(inside);
    let own = if up > 0 { vec!["self"] } else { Vec::new() };
    own.into_iter().chain(path[up..].iter().copied()).map(str::to_string).collect()
}
