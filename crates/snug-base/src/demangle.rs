//! Names of C++ and Rust functions as their sources have them, from the names that linkers see. Pure.

use std::fmt::{self, Write};

/// Longer ones are cut: a name of some letters may stand for one of gigabytes.
const TEXT_MAX_BYTES: usize = 4096;

/// A function's name as people write it, without its parameters; what is no such name stays as it is.
pub fn demangled(name: &str) -> String {
    let mut text = Bounded(String::new());
    // Written as far as there is room.
    if let Ok(symbol) = rustc_demangle::try_demangle(name) {
        let _ = write!(text, "{symbol:#}");
    } else if name.starts_with("_Z") {
        let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
        if let Ok(symbol) = cpp_demangle::Symbol::new(name) {
            let is_whole = symbol.structured_demangle(&mut text, &options).is_ok();
            if !is_whole && text.0.len() < TEXT_MAX_BYTES {
                text.0.clear();
            }
        }
    }
    if text.0.is_empty() {
        return name.to_string();
    }
    text.0
}

/// A text with an end.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let left = TEXT_MAX_BYTES - self.0.len();
        if more.len() <= left {
            self.0.push_str(more);
            return Ok(());
        }
        let end = (0..=left).rev().find(|end| more.is_char_boundary(*end)).unwrap_or(0);
        self.0.push_str(&more[..end]);
        self.0.extend(std::iter::repeat_n('.', TEXT_MAX_BYTES - self.0.len()));
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{must_end, Random};

    #[test]
    fn names_are_those_of_the_sources() {
        for (mangled, expected) in [
            ("_ZN4shop4Cart3addERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE", "shop::Cart::add"),
            ("_ZN4shop4Cart3addEi.part.0", "shop::Cart::add"),
            (
                "_ZNSt6vectorIiSaIiEE17_M_realloc_insertIJiEEEvN9__gnu_cxx17__normal_iteratorIPiS1_EEDpOT_",
                "std::vector<int, std::allocator<int> >::_M_realloc_insert<int>",
            ),
            ("_Znwm", "operator new"),
            ("_ZN4shop4cart3add17h0123456789abcdefE", "shop::cart::add"),
            ("_RNvNtCs1234_4shop4cart3add", "shop::cart::add"),
            ("main", "main"),
            ("_Zebra", "_Zebra"),
            ("rb_str_new", "rb_str_new"),
            ("", ""),
        ] {
            assert_eq!(demangled(mangled), expected);
        }
    }

    /// Each part of such a name stands for twice the one before.
    #[test]
    fn names_that_stand_for_gigabytes_are_cut() {
        must_end(|| {
            let doubled: String =
                (0..60).map(|number| format!("1pIS{}_S{}_E", code(number), code(number))).collect();
            for name in [format!("_Z1fI1pIiE{doubled}Evv"), format!("_Z{}", "P".repeat(100_000))] {
                assert!(demangled(&name).len() <= TEXT_MAX_BYTES.max(name.len()));
            }
            let mut random = Random::new(9);
            for _ in 0..20_000 {
                let letters = b"_ZNSIESt1pf02aTLKRvEDpJXL";
                let length = 3 + random.below(60);
                let begin = ["_Z", "_R", "_ZN"][random.below(3) as usize];
                let mut letter = |_| char::from(letters[random.below(letters.len() as u64) as usize]);
                let name = format!("{begin}{}", (0..length).map(&mut letter).collect::<String>());
                assert!(demangled(&name).len() <= TEXT_MAX_BYTES);
            }
        });
    }

    fn code(number: u32) -> String {
        std::char::from_digit(number % 36, 36).unwrap().to_ascii_uppercase().to_string()
    }
}
