//! The library to which a file of Ruby or Python belongs, by its path. Pure.

/// What is of no library.
pub const APPLICATION: &str = "application";

/// The name of the gem or package; of what comes with the language, the language.
pub fn library_of(path: &str, language: &str) -> String {
    let found = match language {
        "ruby" => gem_of(path),
        _ => package_of(path),
    };
    found.map_or_else(|| if is_own(path, language) { language } else { APPLICATION }.into(), String::from)
}

/// The part of a path behind the last of these folders.
fn behind<'a>(path: &'a str, folders: &[&str]) -> Option<&'a str> {
    folders.iter().filter_map(|folder| path.rsplit_once(folder)).map(|(_, rest)| rest).next()
}

fn gem_of(path: &str) -> Option<&str> {
    if let Some(rest) = behind(path, &["/extensions/"]) {
        // PLATFORM/RUBY/NAME-VERSION/FILE
        return rest.split('/').nth(2).map(without_version);
    }
    if let Some(rest) = behind(path, &["/gems/"]) {
        return rest.split('/').next().map(without_version);
    }
    let rest = behind(path, &["/vendor_ruby/"])?;
    let begins_with_version = rest.starts_with(|c: char| c.is_ascii_digit());
    let rest = if begins_with_version { rest.split_once('/')?.1 } else { rest };
    rest.split('/').next().map(without_ending)
}

/// `rails-html-sanitizer` of `rails-html-sanitizer-1.4.4`, and of the commit that Bundler checks out.
fn without_version(folder: &str) -> &str {
    let is_version = |text: &str| {
        let is_commit = text.len() >= 7 && text.chars().all(|c| c.is_ascii_hexdigit());
        text.starts_with(|c: char| c.is_ascii_digit()) || is_commit
    };
    let dashes = folder.match_indices('-').map(|(at, _)| at);
    dashes.into_iter().find(|at| is_version(&folder[at + 1..])).map_or(folder, |at| &folder[..at])
}

fn package_of(path: &str) -> Option<&str> {
    behind(path, &["/site-packages/", "/dist-packages/"])?.split('/').next().map(without_ending)
}

fn without_ending(file: &str) -> &str {
    file.split_once('.').map_or(file, |(name, _)| name)
}

/// Whether a file comes with the language. Without a folder it is built in.
fn is_own(path: &str, language: &str) -> bool {
    let has_version = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    match language {
        "ruby" => !path.contains('/') || behind(path, &["/lib/ruby/", "/ruby/"]).is_some_and(has_version),
        _ => !path.contains('/') || behind(path, &["/lib/python", "/lib64/python"]).is_some_and(has_version),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gems() {
        for (path, library) in [
            (
                "/usr/share/rubygems-integration/all/gems/rails-html-sanitizer-1.4.4/lib/a.rb",
                "rails-html-sanitizer",
            ),
            ("/var/lib/gems/3.1.0/gems/puma-5.6.5/lib/puma/dsl.rb", "puma"),
            ("/app/vendor/bundle/ruby/3.3.0/gems/nokogiri-1.16.0-x86_64-linux/lib/nokogiri.rb", "nokogiri"),
            ("/app/vendor/bundle/ruby/3.3.0/bundler/gems/rails-0a1b2c3d4e5f/lib/rails.rb", "rails"),
            ("/var/lib/gems/3.1.0/extensions/x86_64-linux/3.1.0/bcrypt-3.1.18/bcrypt_ext.so", "bcrypt"),
            ("/usr/lib/ruby/vendor_ruby/concurrent/map.rb", "concurrent"),
            ("/usr/lib/ruby/vendor_ruby/tzinfo.rb", "tzinfo"),
            ("/usr/lib/x86_64-linux-gnu/ruby/vendor_ruby/3.1.0/nio4r_ext.so", "nio4r_ext"),
            ("/usr/lib/ruby/3.1.0/json/common.rb", "ruby"),
            ("/usr/lib/x86_64-linux-gnu/ruby/3.1.0/stringio.so", "ruby"),
            ("/opt/ruby/lib/ruby/3.4.0/set.rb", "ruby"),
            ("thread.rb", "ruby"),
            ("/srv/shop/config/application.rb", "application"),
            ("/home/ruby/shop/app.rb", "application"),
        ] {
            assert_eq!(library_of(path, "ruby"), library, "{path}");
        }
    }

    #[test]
    fn packages() {
        for (path, library) in [
            ("/usr/lib/python3/dist-packages/celery/app/base.py", "celery"),
            ("/venv/lib/python3.12/site-packages/six.py", "six"),
            (
                "/venv/lib/python3.12/site-packages/_cffi_backend.cpython-312-x86_64-linux-gnu.so",
                "_cffi_backend",
            ),
            ("/usr/lib/python3.11/json/decoder.py", "python"),
            ("/usr/lib/python3.11/lib-dynload/_json.cpython-311-x86_64-linux-gnu.so", "python"),
            ("built-in", "python"),
            ("frozen", "python"),
            ("/srv/shop/app.py", "application"),
        ] {
            assert_eq!(library_of(path, "python"), library, "{path}");
        }
    }
}
