//! How text looks on the screen: colours, and columns of one width.

use ratatui::style::{Color, Modifier, Style};

/// The colours, or none of them: then bold, dim and reversed text tell the same.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Palette {
    pub colours: bool,
}

impl Palette {
    pub(crate) fn colour(self, colour: Color, modifier: Modifier) -> Style {
        if self.colours {
            Style::new().fg(colour)
        } else {
            Style::new().add_modifier(modifier)
        }
    }

    pub(crate) fn title(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(crate) fn faint(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    pub(crate) fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub(crate) fn good(self) -> Style {
        self.colour(Color::Green, Modifier::BOLD)
    }

    pub(crate) fn bad(self) -> Style {
        self.colour(Color::Red, Modifier::BOLD)
    }

    pub(crate) fn bars(self) -> Style {
        self.colour(Color::Cyan, Modifier::empty())
    }
}

/// A text of exactly this width; what is too long ends in an ellipsis.
pub(crate) fn aligned(text: &str, width: u16, to_the_right: bool) -> String {
    let width = usize::from(width);
    if text.chars().count() > width {
        let kept: String = text.chars().take(width.saturating_sub(1)).collect();
        return format!("{kept}…");
    }
    if to_the_right {
        format!("{text:>width$}")
    } else {
        format!("{text:<width$}")
    }
}
