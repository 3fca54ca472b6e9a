//! Pieces of SVG. What is drawn carries both its colour and the name of what it is (`class`), so that a page can
//! recolour it by a style sheet, and a file alone looks right, too. Pure.

use std::fmt::Write;

/// What a thing is, with its colour on white paper.
#[derive(Clone, Copy)]
pub(crate) enum Role {
    Ink,
    Muted,
    Grid,
    Axis,
    Paper,
    Band,
}

impl Role {
    pub(crate) fn class(self) -> &'static str {
        match self {
            Role::Ink => "ink",
            Role::Muted => "muted",
            Role::Grid => "grid",
            Role::Axis => "axis",
            Role::Paper => "paper",
            Role::Band => "band",
        }
    }

    pub(crate) fn colour(self) -> &'static str {
        match self {
            Role::Ink => "#212529",
            Role::Muted => "#6c757d",
            Role::Grid => "#e9ecef",
            Role::Axis => "#adb5bd",
            Role::Paper => "#ffffff",
            Role::Band => "#f4f6f8",
        }
    }
}

/// How a text stands.
#[derive(Clone, Copy)]
pub(crate) struct Style {
    pub size: f64,
    /// `start`, `middle` or `end`.
    pub anchor: &'static str,
    pub role: Role,
    pub bold: bool,
    /// A rim in the colour of the paper, to be read on top of lines.
    pub rim: bool,
}

impl Style {
    pub(crate) fn new(size: f64, anchor: &'static str, role: Role) -> Style {
        Style { size, anchor, role, bold: false, rim: false }
    }

    pub(crate) fn bold(mut self, bold: bool) -> Style {
        self.bold = bold;
        self
    }

    pub(crate) fn rim(mut self) -> Style {
        self.rim = true;
        self
    }
}

/// Adds a text.
pub(crate) fn text(svg: &mut String, (x, y): (f64, f64), style: Style, content: &str) {
    let rim = if style.rim {
        " stroke=\"#ffffff\" stroke-width=\"3\" stroke-linejoin=\"round\" paint-order=\"stroke\""
    } else {
        ""
    };
    let _ = writeln!(
        svg,
        "<text class=\"{}{}\" x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{}\" text-anchor=\"{}\" fill=\"{}\"{}{rim}>{}</text>",
        style.role.class(),
        if style.rim { " rim" } else { "" },
        style.size,
        style.anchor,
        style.role.colour(),
        if style.bold { " font-weight=\"bold\"" } else { "" },
        escape(content)
    );
}

/// Adds a straight line.
pub(crate) fn line(svg: &mut String, from: (f64, f64), to: (f64, f64), role: Role) {
    let _ = writeln!(
        svg,
        "<line class=\"{}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{}\"/>",
        role.class(),
        from.0,
        from.1,
        to.0,
        to.1,
        role.colour()
    );
}

/// Adds a filled rectangle.
pub(crate) fn rectangle(svg: &mut String, from: (f64, f64), size: (f64, f64), role: Role) {
    let _ = writeln!(
        svg,
        "<rect class=\"{}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\"/>",
        role.class(),
        from.0,
        from.1,
        size.0,
        size.1,
        role.colour()
    );
}

/// Coordinates of a polyline.
pub(crate) fn points(line: &[(f64, f64)]) -> String {
    let coordinates: Vec<String> = line.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    coordinates.join(" ")
}

/// An attribute for a dashed line; nothing for a solid one.
pub(crate) fn dash(pattern: &str) -> String {
    if pattern.is_empty() {
        String::new()
    } else {
        format!(" stroke-dasharray=\"{pattern}\"")
    }
}

/// Text as XML wants it.
pub(crate) fn escape(content: &str) -> String {
    let mut escaped = String::with_capacity(content.len());
    for c in content.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // Not allowed in XML at all.
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

/// A guess at the width of a text, in the unit of its size, for keeping labels apart.
pub(crate) fn width_of(content: &str, size: f64) -> f64 {
    content.chars().count() as f64 * size * 0.57
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        assert_eq!(escape("a<b & \"c\"\u{7}"), "a&lt;b &amp; &quot;c&quot; ");
        let mut svg = String::new();
        text(&mut svg, (1.0, 2.0), Style::new(12.0, "end", Role::Muted).bold(true), "<i>");
        assert!(svg.contains("class=\"muted\"") && svg.contains("&lt;i&gt;") && svg.contains("bold"));
    }
}
