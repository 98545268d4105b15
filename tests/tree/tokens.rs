//! A source file as the compiler sees it: tokens with lines, no comments, tests marked.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// One token of a flattened source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    /// The text; of groups, their opening and closing signs.
    pub(crate) text: String,
    /// Its line, from 1.
    pub(crate) line: usize,
    /// Whether it is compiled into tests only.
    pub(crate) in_test: bool,
}

/// The tokens of a source file.
///
/// Panics: the file is not Rust.
pub(crate) fn read(path: &str, text: &str) -> Vec<Token> {
    let stream: TokenStream = text.parse().unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut tokens = Vec::new();
    flatten(stream, false, &mut tokens);
    tokens
}

fn flatten(stream: TokenStream, in_test: bool, tokens: &mut Vec<Token>) {
    // An attribute `cfg(test)` covers everything up to the end of its item: `;` or a block.
    let mut item_in_test = false;
    let mut after_hash = false;
    for tree in stream {
        let line = tree.span().start().line;
        let marked = in_test || item_in_test;
        match tree {
            TokenTree::Group(group) => {
                let inner = group.stream();
                item_in_test |= after_hash && inner.to_string().replace(' ', "").starts_with("cfg(test");
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                tokens.push(Token { text: open.to_owned(), line, in_test: marked });
                flatten(inner, marked, tokens);
                tokens.push(Token {
                    text: close.to_owned(),
                    line: group.span_close().start().line,
                    in_test: marked,
                });
                item_in_test &= group.delimiter() != Delimiter::Brace;
                after_hash = false;
            }
            other => {
                let text = other.to_string();
                item_in_test &= text != ";";
                after_hash = text == "#";
                tokens.push(Token { text, line, in_test: marked });
            }
        }
    }
}

/// The lines at which a sequence of tokens begins. `*` in the sequence stands for any one token.
pub(crate) fn find(tokens: &[Token], sequence: &[&str]) -> Vec<usize> {
    let fits = |window: &[Token]| window.iter().zip(sequence).all(|(t, s)| *s == "*" || t.text == *s);
    tokens.windows(sequence.len()).filter(|window| fits(window)).map(|window| window[0].line).collect()
}

#[test]
fn tests_are_marked_up_to_the_end_of_their_item() {
    let source = "fn a() { x }\n#[cfg(test)]\nmod tests { y }\nfn b() { z }\n#[cfg(test)]\nuse q;\nfn c() {}";
    let tokens = read("source", source);
    let in_test = |text: &str| tokens.iter().find(|t| t.text == text).expect("in the source").in_test;
    assert_eq!(["x", "y", "z", "q", "c"].map(in_test), [false, true, false, true, false]);
    assert_eq!(find(&tokens, &["fn", "*", "("]), [1, 4, 7]);
}
