//! Lines and points in a plane as an SVG picture. Knows nothing of allocators; pure.
//!
//! The same drawing is the published picture and a part of the page: text never decides where a line goes, and a
//! `Layout` says what surrounds the plane and how large it is.

mod axis;
mod drawing;
mod svg;

use std::fmt::Write;

pub use axis::Axis;

/// A picture: lines and points in one plane.
pub struct Chart {
    pub title: String,
    pub subtitle: String,
    pub footer: String,
    pub x: Axis,
    pub y: Axis,
    /// Named parts of the x axis, left to right.
    pub bands: Vec<Band>,
    /// A faint line behind everything.
    pub guide: Vec<(f64, f64)>,
    /// Where the better results are.
    pub better: Option<Better>,
    /// Headings of the two columns of values.
    pub legend_titles: [String; 2],
    pub series: Vec<ChartSeries>,
}

/// A named part of the x axis.
pub struct Band {
    pub name: String,
    pub start: f64,
    pub end: f64,
}

/// The corner that is better, and the words for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Better {
    BelowRight,
    BelowLeft,
}

/// One allocator in the picture: lines or a point, and its legend.
pub struct ChartSeries {
    pub name: String,
    /// Small lines below the name.
    pub details: Vec<String>,
    /// What stands at the right of the name, in two columns.
    pub values: [String; 2],
    pub colour: &'static str,
    /// Series with the same class share a colour.
    pub class: &'static str,
    /// The how-manieth series of its class this is: it chooses dashes and the shape of points.
    pub variant: usize,
    pub emphasised: bool,
    pub line: Vec<(f64, f64)>,
    pub faint_lines: Vec<Vec<(f64, f64)>>,
    /// Places on the line that are marked, with what a reader sees who points at one.
    pub marks: Vec<Mark>,
    /// Single results behind the marks.
    pub faint_points: Vec<(f64, f64)>,
}

/// A point with intervals of confidence and a label beside it.
pub struct Mark {
    pub at: (f64, f64),
    pub x_interval: Option<(f64, f64)>,
    pub y_interval: Option<(f64, f64)>,
    pub label: String,
    pub hint: String,
}

/// Size and surroundings of the plane, in pixels.
pub struct ChartLayout {
    width: f64,
    height: f64,
    left: f64,
    top: f64,
    plot_width: f64,
    plot_height: f64,
    /// Size of the text at the axes.
    text: f64,
    x_ticks: usize,
    y_ticks: usize,
    /// A picture of its own: paper, title, legend and footer.
    whole: bool,
}

/// A picture that stands alone.
pub const PICTURE: ChartLayout = ChartLayout {
    width: 1120.0,
    height: 600.0,
    left: 78.0,
    top: 88.0,
    plot_width: 720.0,
    plot_height: 420.0,
    text: 13.0,
    x_ticks: 8,
    y_ticks: 6,
    whole: true,
};

/// The plane on a page that has the words around it.
pub const PAGE: ChartLayout = ChartLayout {
    width: 820.0,
    height: 430.0,
    left: 58.0,
    top: 24.0,
    plot_width: 752.0,
    plot_height: 350.0,
    text: 13.0,
    x_ticks: 8,
    y_ticks: 6,
    whole: false,
};

/// The same on a telephone.
pub const NARROW: ChartLayout = ChartLayout {
    width: 380.0,
    height: 330.0,
    left: 44.0,
    top: 22.0,
    plot_width: 328.0,
    plot_height: 258.0,
    text: 11.5,
    x_ticks: 5,
    y_ticks: 5,
    whole: false,
};

const FONT: &str = "'Noto Sans', 'Segoe UI', 'Helvetica Neue', Arial, sans-serif";
const DASHES: &[&str] = &["", "7 4", "2 3", "10 4 2 4", "14 4"];

/// Characters of the small font that fit beside the plot.
pub const LEGEND_CHARACTERS: usize = 36;

impl Chart {
    /// Draws the chart.
    pub fn to_svg(&self, layout: &ChartLayout) -> String {
        drawing::draw(self, layout)
    }
}

impl ChartSeries {
    /// Its line or mark as a small picture, for the legend of a page.
    pub fn key_svg(&self) -> String {
        let mut svg = String::from(
            "<svg class=\"key\" width=\"34\" height=\"14\" viewBox=\"0 0 34 14\" aria-hidden=\"true\">",
        );
        self.open_group(&mut svg);
        self.draw_key(&mut svg, (0.0, 7.0), 34.0);
        svg.push_str("</g></svg>");
        svg
    }

    fn dash(&self) -> &'static str {
        DASHES[self.variant % DASHES.len()]
    }

    /// Everything inside is drawn in the colour of the series, whatever a style sheet makes it.
    fn open_group(&self, svg: &mut String) {
        let _ = writeln!(
            svg,
            "<g class=\"series {}\" data-name=\"{}\" color=\"{}\">",
            self.class,
            svg::escape(&self.full_name()),
            self.colour
        );
    }

    /// Name and details in one line.
    pub fn full_name(&self) -> String {
        let name = self.name.as_str();
        std::iter::once(name).chain(self.details.iter().map(String::as_str)).collect::<Vec<_>>().join(" ")
    }

    fn draw_key(&self, svg: &mut String, (x, y): (f64, f64), length: f64) {
        if self.line.is_empty() {
            self.draw_shape(svg, (x + length / 2.0, y), if self.emphasised { 6.5 } else { 5.0 });
            return;
        }
        let width = if self.emphasised { 4.0 } else { 2.4 };
        let _ = writeln!(
            svg,
            "<line x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\" stroke=\"currentColor\" stroke-width=\"{width}\"{}/>",
            x + length,
            svg::dash(self.dash())
        );
    }

    /// A circle, a square, a diamond or a triangle.
    fn draw_shape(&self, svg: &mut String, (x, y): (f64, f64), radius: f64) {
        let corner = |dx: f64, dy: f64| (x + dx * radius, y + dy * radius);
        let corners = match self.variant % 4 {
            0 => {
                let _ = write!(
                    svg,
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\" fill=\"currentColor\"/>"
                );
                return;
            }
            1 => vec![corner(-0.88, -0.88), corner(0.88, -0.88), corner(0.88, 0.88), corner(-0.88, 0.88)],
            2 => vec![corner(0.0, -1.25), corner(1.25, 0.0), corner(0.0, 1.25), corner(-1.25, 0.0)],
            _ => vec![corner(0.0, -1.2), corner(1.1, 0.85), corner(-1.1, 0.85)],
        };
        let _ = write!(svg, "<polygon points=\"{}\" fill=\"currentColor\"/>", svg::points(&corners));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, at: (f64, f64)) -> ChartSeries {
        ChartSeries {
            name: name.into(),
            details: Vec::new(),
            values: [String::new(), String::new()],
            colour: "#123456",
            class: "k",
            variant: 0,
            emphasised: false,
            line: Vec::new(),
            faint_lines: Vec::new(),
            marks: vec![Mark {
                at,
                x_interval: None,
                y_interval: None,
                label: name.into(),
                hint: "<hint>".into(),
            }],
            faint_points: Vec::new(),
        }
    }

    fn chart(series: Vec<ChartSeries>) -> Chart {
        Chart {
            title: "a & b".into(),
            subtitle: String::new(),
            footer: String::new(),
            x: Axis::from_zero("x", "s", 10.0),
            y: Axis::from_zero("y", "MB", 10.0),
            bands: vec![Band { name: "load".into(), start: 0.0, end: 5.0 }],
            guide: Vec::new(),
            better: Some(Better::BelowRight),
            legend_titles: [String::new(), String::new()],
            series,
        }
    }

    #[test]
    fn labels_of_neighbours_do_not_cover_each_other() {
        let svg = chart(vec![series("one", (5.0, 5.0)), series("two", (5.1, 5.1))]).to_svg(&PAGE);
        let at = |name: &str| -> (String, String) {
            let line = svg.lines().find(|line| line.ends_with(&format!(">{name}</text>"))).unwrap();
            let attribute = |name: &str| {
                line.split_once(&format!(" {name}=\"")).unwrap().1.split('"').next().unwrap().to_string()
            };
            (attribute("text-anchor"), attribute("y"))
        };
        assert_ne!(at("one"), at("two"));
    }

    #[test]
    fn only_the_whole_picture_has_paper_and_title() {
        let chart = chart(vec![series("one", (5.0, 5.0))]);
        let (picture, page) = (chart.to_svg(&PICTURE), chart.to_svg(&PAGE));
        assert!(picture.contains("class=\"paper\"") && picture.contains(">a &amp; b</text>"));
        assert!(!page.contains("class=\"paper\"") && page.contains("aria-label=\"a &amp; b\""));
        assert!(page.contains("data-units=\"s MB\"") && page.contains("<title>&lt;hint&gt;</title>"));
        assert!(page.contains(">load</text>") && page.contains("to the right"));
    }
}
