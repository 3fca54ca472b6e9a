//! Words, numbers and signs of a condition. Pure.

use std::fmt;

/// A piece of a condition.
#[derive(Debug, Clone, PartialEq)]
pub enum Token {
    /// A number with its unit, which may be empty.
    Number(f64, String),
    /// Words and quoted texts, joined by dots.
    Name(Vec<String>),
    Sign(String),
}

impl fmt::Display for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Number(value, unit) => write!(formatter, "{value}{unit}"),
            Token::Name(parts) => write!(formatter, "{}", parts.join(".")),
            Token::Sign(sign) => write!(formatter, "{sign}"),
        }
    }
}

/// Whether a name can stand without quotes.
pub fn is_word(name: &str) -> bool {
    name.chars().next().is_some_and(char::is_alphabetic) && name.chars().all(is_word_part)
}

fn is_word_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Cuts a condition into tokens.
pub fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut rest = Rest { text, at: 0 };
    let mut tokens = Vec::new();
    loop {
        rest.skip_spaces();
        let Some(next) = rest.peek() else { return Ok(tokens) };
        tokens.push(match next {
            '0'..='9' => rest.number()?,
            '\'' | '"' => rest.name()?,
            c if c.is_alphabetic() => rest.name()?,
            _ => rest.sign()?,
        });
    }
}

struct Rest<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Rest<'a> {
    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let rest = &self.text[self.at..];
        let length = rest.find(|c| !wanted(c)).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    fn skip_spaces(&mut self) {
        self.take_while(char::is_whitespace);
    }

    fn number(&mut self) -> Result<Token, String> {
        let digits = self.take_while(|c| c.is_ascii_digit() || c == '.');
        let value = digits.parse().map_err(|_| format!("{digits} is not a number"))?;
        let after = self.at;
        self.skip_spaces();
        // A rate, as in 100 /s; else it is divided by something whose name begins like that.
        let per_s = self.text[self.at..].strip_prefix("/s");
        if per_s.is_some_and(|rest| !rest.starts_with(|c: char| is_word_part(c) || c == '.')) {
            self.at += "/s".len();
            return Ok(Token::Number(value, "/s".into()));
        }
        let unit = self.take_while(|c| c.is_alphabetic() || c == '%');
        if unit == "and" {
            self.at = after;
            return Ok(Token::Number(value, String::new()));
        }
        Ok(Token::Number(value, unit.into()))
    }

    fn name(&mut self) -> Result<Token, String> {
        let mut parts = Vec::new();
        loop {
            parts.push(match self.peek() {
                Some(quote @ ('\'' | '"')) => self.quoted(quote)?,
                Some(c) if is_word_part(c) => self.take_while(is_word_part).to_string(),
                _ => return Err(format!("expected a name after {}.", parts.join("."))),
            });
            // `metric:NAME` is what tables and files call it.
            let joined = self.peek() == Some('.')
                || (self.peek() == Some(':') && parts.last().is_some_and(|p| p == "metric"));
            if !joined {
                return Ok(Token::Name(parts));
            }
            self.at += 1;
        }
    }

    fn quoted(&mut self, quote: char) -> Result<String, String> {
        self.at += 1;
        let content = self.take_while(|c| c != quote).to_string();
        if self.peek().is_none() {
            return Err(format!("missing closing {quote} after {content:?}"));
        }
        self.at += 1;
        Ok(content)
    }

    fn sign(&mut self) -> Result<Token, String> {
        const SIGNS: &[&str] = &["<=", ">=", "==", "!=", "<", ">", "+", "-", "*", "/", "(", ")"];
        let rest = &self.text[self.at..];
        if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            self.at += sign.len();
            return Ok(Token::Sign(sign.to_string()));
        }
        let c = self.peek().unwrap_or(' ');
        let hint = match c {
            '=' => "; to compare write ==",
            ':' => "; a name with more than letters, digits and _ stands in quotes, as 'glibc:MALLOC_ARENA_MAX=2'",
            '&' => "; join conditions with the word and",
            '|' => "; for either of two conditions, give the option twice",
            _ => "",
        };
        Err(format!("unexpected {c:?}{hint}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(parts: &[&str]) -> Token {
        Token::Name(parts.iter().map(|part| part.to_string()).collect())
    }

    #[test]
    fn names_numbers_and_signs() {
        let found = tokens("snug.idle.rss_mean>=0.8*\"a b\".latency_p99.9 + 5 MB").unwrap();
        let sign = |sign: &str| Token::Sign(sign.into());
        assert_eq!(
            found,
            [
                name(&["snug", "idle", "rss_mean"]),
                sign(">="),
                Token::Number(0.8, String::new()),
                sign("*"),
                name(&["a b", "latency_p99", "9"]),
                sign("+"),
                Token::Number(5.0, "MB".into()),
            ]
        );
        assert_eq!(tokens("1 and x.y").unwrap().len(), 3);
        for text in ["100/s", "100 /s", "100 /s and 1 < 2"] {
            assert_eq!(tokens(text).unwrap()[0], Token::Number(100.0, "/s".into()), "{text}");
        }
        for text in ["100/snug.x", "100 / s.x", "100/s.x"] {
            assert_eq!(
                tokens(text).unwrap()[..2],
                [Token::Number(100.0, String::new()), sign("/")],
                "{text}"
            );
        }
        assert_eq!(tokens("x.metric:y").unwrap(), [name(&["x", "metric", "y"])]);
    }

    #[test]
    fn mistakes_are_named() {
        assert!(tokens("glibc:A=2.rss > 1").unwrap_err().contains("stands in quotes"));
        assert!(tokens("'glibc.rss").unwrap_err().contains("missing closing"));
        assert!(tokens("a.b = 1").unwrap_err().contains("write =="));
        assert!(tokens("a.b > 1 || c.d > 2").unwrap_err().contains("give the option twice"));
        assert!(tokens("a. > 1").unwrap_err().contains("after a."));
        assert!(tokens("1.2.3").unwrap_err().contains("not a number"));
        assert!(tokens("a.b > 1 é").is_ok());
    }

    #[test]
    fn words_need_no_quotes() {
        assert!(is_word("jemalloc") && is_word("a_1") && !is_word("a-1") && !is_word("1a") && !is_word(""));
    }
}
