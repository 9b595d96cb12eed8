//! The tokens and paths of Rust source, for the checks in `tests/tidy.rs`.
//!
//! Comments vanish and literals lose their text, so that what is left is code. Macros
//! are not expanded and names are not resolved; source that does not compile gives some
//! tokens, and never an endless loop or a panic.

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// An identifier or keyword.
    Word,
    /// A raw identifier, `r#name`, which is never a keyword; its text is the name.
    RawWord,
    Lifetime,
    /// A string, character or number; its text is empty.
    Literal,
    Sign,
}

#[derive(Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) text: String,
    pub(crate) line: usize,
}

impl Token {
    pub(crate) fn is_word(&self, word: &str) -> bool {
        self.kind == Kind::Word && self.text == word
    }

    pub(crate) fn is_sign(&self, sign: char) -> bool {
        self.kind == Kind::Sign && self.text.starts_with(sign)
    }

    pub(crate) fn is_name(&self) -> bool {
        matches!(self.kind, Kind::Word | Kind::RawWord)
    }
}

/// The tokens of Rust source. Comments vanish and literals lose their text.
pub(crate) fn tokens(text: &str) -> Vec<Token> {
    Scanner {
        chars: text.chars().collect(),
        at: 0,
        line: 1,
        found: Vec::new(),
    }
    .run()
}

struct Scanner {
    chars: Vec<char>,
    at: usize,
    line: usize,
    found: Vec<Token>,
}

impl Scanner {
    fn run(mut self) -> Vec<Token> {
        while let Some(c) = self.peek(0) {
            match c {
                '/' if self.peek(1) == Some('/') => self.skip_while(|c| c != '\n'),
                '/' if self.peek(1) == Some('*') => self.block_comment(),
                '"' => self.quoted('"'),
                '\'' => self.character_or_lifetime(),
                c if is_name_start(c) => self.word(),
                c if c.is_ascii_digit() => {
                    let line = self.line;
                    self.skip_while(is_name_part);
                    self.push(Kind::Literal, String::new(), line);
                }
                c if c.is_whitespace() => self.step(),
                c => {
                    let line = self.line;
                    self.step();
                    self.push(Kind::Sign, c.to_string(), line);
                }
            }
        }
        self.found
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn step(&mut self) {
        if self.peek(0) == Some('\n') {
            self.line += 1;
        }
        self.at += 1;
    }

    fn skip_while(&mut self, wanted: impl Fn(char) -> bool) {
        while self.peek(0).is_some_and(&wanted) {
            self.step();
        }
    }

    fn push(&mut self, kind: Kind, text: String, line: usize) {
        self.found.push(Token { kind, text, line });
    }

    /// Block comments nest.
    fn block_comment(&mut self) {
        let mut depth = 0;
        while let Some(c) = self.peek(0) {
            match (c, self.peek(1)) {
                ('/', Some('*')) => {
                    depth += 1;
                    self.step();
                }
                ('*', Some('/')) => {
                    depth -= 1;
                    self.step();
                }
                _ => {}
            }
            self.step();
            if depth == 0 {
                return;
            }
        }
    }

    /// A literal with escapes, from its opening quote to its closing one.
    fn quoted(&mut self, quote: char) {
        let line = self.line;
        self.step();
        while let Some(c) = self.peek(0) {
            self.step();
            if c == '\\' {
                self.step();
            } else if c == quote {
                break;
            }
        }
        self.push(Kind::Literal, String::new(), line);
    }

    /// `'a'` and `'\n'` are characters; `'a` with no quote after one character is a lifetime.
    fn character_or_lifetime(&mut self) {
        if self.peek(1) == Some('\\') || self.peek(2) == Some('\'') {
            self.quoted('\'');
            return;
        }
        let line = self.line;
        self.step();
        self.skip_while(is_name_part);
        self.push(Kind::Lifetime, String::new(), line);
    }

    fn word(&mut self) {
        let line = self.line;
        let start = self.at;
        self.skip_while(is_name_part);
        let word: String = self.chars[start..self.at].iter().collect();
        let raw = matches!(word.as_str(), "r" | "br" | "cr");
        let mut hashes = 0;
        while raw && self.peek(hashes) == Some('#') {
            hashes += 1;
        }
        if raw && self.peek(hashes) == Some('"') {
            self.raw_string(hashes);
            self.push(Kind::Literal, String::new(), line);
        } else if word == "r" && hashes == 1 && self.peek(1).is_some_and(is_name_start) {
            self.step();
            let start = self.at;
            self.skip_while(is_name_part);
            let name = self.chars[start..self.at].iter().collect();
            self.push(Kind::RawWord, name, line);
        } else if matches!(word.as_str(), "b" | "c") && self.peek(0) == Some('"') {
            self.quoted('"');
        } else if word == "b" && self.peek(0) == Some('\'') {
            self.quoted('\'');
        } else {
            self.push(Kind::Word, word, line);
        }
    }

    /// From the hashes before the opening quote to as many after the closing one.
    fn raw_string(&mut self, hashes: usize) {
        self.at += hashes + 1;
        while let Some(c) = self.peek(0) {
            self.step();
            if c == '"' && (0..hashes).all(|ahead| self.peek(ahead) == Some('#')) {
                self.at += hashes;
                return;
            }
        }
    }
}

fn is_name_start(c: char) -> bool {
    c == '_' || c.is_alphabetic()
}

fn is_name_part(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// One path of the source, such as `std::sync::Arc`, and the token where its last name stands.
pub(crate) struct NamedPath {
    pub(crate) names: Vec<String>,
    pub(crate) at: usize,
}

impl NamedPath {
    /// Whether the path goes through this one. A lone name must be used as a path: the
    /// local variable `loom` is not the crate.
    pub(crate) fn starts_with(&self, head: &[&str]) -> bool {
        self.names.len() > 1
            && self.names.len() >= head.len()
            && self
                .names
                .iter()
                .zip(head)
                .all(|(name, wanted)| name == wanted)
    }
}

/// Every path of at least one name, with the trees of `use` written out.
pub(crate) fn paths(tokens: &[Token]) -> Vec<NamedPath> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if tokens[at].is_name() {
            at = path_tree(tokens, at, &[], &mut found);
        } else {
            at += 1;
        }
    }
    found
}

/// Reads one path or `use` tree at `at`, which follows `prefix::`; returns where it ends.
fn path_tree(
    tokens: &[Token],
    mut at: usize,
    prefix: &[String],
    found: &mut Vec<NamedPath>,
) -> usize {
    let mut names = prefix.to_vec();
    let mut last = at;
    while let Some(token) = tokens.get(at) {
        if token.is_name() || (token.is_sign('*') && !names.is_empty()) {
            names.push(token.text.clone());
            last = at;
            at += 1;
        } else if token.is_sign('{') && !names.is_empty() {
            return group(tokens, at + 1, &names, found);
        } else {
            break;
        }
        let joined = tokens.get(at).is_some_and(|t| t.is_sign(':'))
            && tokens.get(at + 1).is_some_and(|t| t.is_sign(':'));
        if !joined {
            break;
        }
        at += 2;
    }
    found.push(NamedPath { names, at: last });
    at.max(last + 1)
}

/// Reads the trees between braces, the first token after `{` being `at`.
fn group(tokens: &[Token], mut at: usize, names: &[String], found: &mut Vec<NamedPath>) -> usize {
    while let Some(token) = tokens.get(at) {
        if token.is_sign('}') {
            return at + 1;
        }
        if token.is_word("as") {
            at += 2; // the new name is not a path
        } else if token.is_name() || token.is_sign('*') {
            at = path_tree(tokens, at, names, found);
        } else {
            at += 1;
        }
    }
    at
}

/// Where the bracket opened at `open` closes; the end of the tokens if it does not.
pub(crate) fn closing(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        if token.kind != Kind::Sign {
            continue;
        }
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    tokens.len()
}

// ---------------------------------------------------------------------------------------
// Tests

fn words(text: &str) -> Vec<String> {
    let words = tokens(text).into_iter().filter(|t| t.kind == Kind::Word);
    words.map(|t| t.text).collect()
}

#[test]
fn comments_vanish_and_block_comments_nest() {
    assert_eq!(words("a // unsafe\nb"), ["a", "b"]);
    assert_eq!(words("a /* unsafe /* unsafe */ unsafe */ b"), ["a", "b"]);
    assert_eq!(words("a /**/ b /***/ c"), ["a", "b", "c"]);
    assert_eq!(words("a /* // */ b"), ["a", "b"]);
    assert_eq!(words("/// unsafe\n//! unsafe\n/*! unsafe */ a"), ["a"]);
    assert_eq!(words("a /* never closed unsafe"), ["a"]);
    assert_eq!(words("a / b /c"), ["a", "b", "c"]);
}

#[test]
fn strings_lose_their_text() {
    assert_eq!(words(r#"a "unsafe" b"#), ["a", "b"]);
    assert_eq!(words(r#"a "\" unsafe \\" b"#), ["a", "b"]);
    assert_eq!(words(r#"a "// no comment" b"#), ["a", "b"]);
    assert_eq!(words(r#"a b"unsafe" c"unsafe" d"#), ["a", "d"]);
    assert_eq!(words("a \"line\nunsafe\" b"), ["a", "b"]);
}

#[test]
fn raw_strings_end_at_their_own_hashes() {
    assert_eq!(words(r##"a r"\" unsafe "\" b"##), ["a", "unsafe"]);
    assert_eq!(words(r###"a r#"unsafe " unsafe"# b"###), ["a", "b"]);
    assert_eq!(words(r####"a r##"unsafe "# unsafe"## b"####), ["a", "b"]);
    assert_eq!(words(r###"a br#"unsafe"# cr#"unsafe"# b"###), ["a", "b"]);
    assert_eq!(words(r#"a r"" b"#), ["a", "b"]);
}

#[test]
fn a_raw_identifier_is_no_keyword() {
    let found = tokens("r#unsafe r#type");
    assert!(found.iter().all(|t| t.kind == Kind::RawWord));
    assert!(!found.iter().any(|t| t.is_word("unsafe")));
}

#[test]
fn characters_are_told_from_lifetimes() {
    assert_eq!(words("'\"' unsafe '\"'"), ["unsafe"]);
    assert_eq!(words(r"'\'' unsafe '\\' b"), ["unsafe", "b"]);
    assert_eq!(words("b'\"' unsafe b'\\'' a"), ["unsafe", "a"]);
    assert_eq!(words("'/' a '*' b"), ["a", "b"]);
    assert_eq!(words("'ü' a '\u{1F600}' b '\\u{1F600}' c"), ["a", "b", "c"]);
    assert_eq!(
        words("fn f<'a, 'unsafe_>(x: &'a str) {}"),
        ["fn", "f", "x", "str"]
    );
    assert_eq!(words("'outer: loop { break 'outer; }"), ["loop", "break"]);
    assert_eq!(
        words("impl<'a> X<'a, 'static> for &'a str"),
        ["impl", "X", "for", "str"]
    );
}

#[test]
fn numbers_and_longer_names_are_not_the_keyword() {
    assert_eq!(
        words("1u8 0xfe 1.5e3 unsafe_code not_unsafe"),
        ["unsafe_code", "not_unsafe"]
    );
    assert_eq!(words("0..unsafe"), ["unsafe"]);
}

#[test]
fn lines_are_counted_through_literals_and_comments() {
    let found = tokens("/*\n\n*/ \"\n\\\n\" r\"\n\" x");
    let last = found.last().map(|t| (t.text.as_str(), t.line));
    assert_eq!(last, Some(("x", 6)));
}

#[test]
fn use_trees_are_written_out() {
    let found = tokens("use a::{self, b::{c as d, *}, e}; f::<g::h>(); i.j(k::l { m: n })");
    let found: Vec<String> = paths(&found).iter().map(|p| p.names.join("::")).collect();
    for wanted in [
        "a::self", "a::b::c", "a::b::*", "a::e", "f", "g::h", "k::l", "m", "n",
    ] {
        assert!(found.iter().any(|p| p == wanted), "{wanted} in {found:?}");
    }
    assert!(!found.iter().any(|p| p.contains('d')), "{found:?}");
}

#[test]
fn source_cut_off_anywhere_still_ends() {
    let whole = "#[cfg(not(loom))] use a::{b::*, c}; /* /* */ 'a' '\\u{1F600}' &'a \"\\\"\" \
                 br##\"x\"#\"## r#type b'\\'' 0x1f";
    let chars: Vec<char> = whole.chars().collect();
    for end in 0..=chars.len() {
        let cut: String = chars[..end].iter().collect();
        let found = tokens(&cut);
        paths(&found);
        for open in 0..found.len() {
            assert!(closing(&found, open) <= found.len());
        }
    }
}
