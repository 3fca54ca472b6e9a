//! Draws a chart: bands, axes, lines, marks with their intervals, labels that keep clear of each other, legend. Pure.

use std::fmt::Write;

use crate::chart::svg::{self, Role, Style};
use crate::chart::{Better, Chart, ChartLayout, ChartSeries, Mark, FONT};

/// The whole chart as SVG.
pub(crate) fn draw(chart: &Chart, layout: &ChartLayout) -> String {
    Drawing { chart, layout, svg: String::new() }.draw()
}

struct Drawing<'a> {
    chart: &'a Chart,
    layout: &'a ChartLayout,
    svg: String,
}

impl Drawing<'_> {
    fn draw(mut self) -> String {
        let ChartLayout { width, height, left, .. } = *self.layout;
        let _ = writeln!(
            self.svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"{FONT}\" role=\"img\" aria-label=\"{}\"{}>",
            svg::escape(&self.chart.title),
            self.scale_attributes()
        );
        if self.layout.whole {
            svg::rectangle(&mut self.svg, (0.0, 0.0), (width, height), Role::Paper);
            svg::text(
                &mut self.svg,
                (left, 38.0),
                Style::new(21.0, "start", Role::Ink).bold(true),
                &self.chart.title,
            );
            svg::text(
                &mut self.svg,
                (left, 62.0),
                Style::new(13.0, "start", Role::Muted),
                &self.chart.subtitle,
            );
        }
        self.draw_bands();
        self.draw_axes();
        self.draw_guide();
        // Emphasised lines last: they lie on top.
        for emphasised in [false, true] {
            for series in self.chart.series.iter().filter(|series| series.emphasised == emphasised) {
                self.draw_series(series);
            }
        }
        self.draw_labels();
        if self.layout.whole {
            self.draw_legend();
            let footer = Style::new(11.0, "start", Role::Muted);
            svg::text(&mut self.svg, (left, height - 16.0), footer, &self.chart.footer);
        }
        self.svg.push_str("</svg>\n");
        self.svg
    }

    /// What a script needs to read values off the lines.
    fn scale_attributes(&self) -> String {
        let (Some(x), Some(y)) = (self.chart.x.range(), self.chart.y.range()) else { return String::new() };
        if self.layout.whole {
            return String::new();
        }
        let ChartLayout { left, top, plot_width, plot_height, .. } = self.layout;
        format!(
            " data-plane=\"{left} {top} {plot_width} {plot_height}\" data-x=\"{} {}\" data-y=\"{} {}\" \
             data-units=\"{} {}\"",
            x.0, x.1, y.0, y.1, self.chart.x.unit, self.chart.y.unit
        )
    }

    fn place(&self, point: (f64, f64)) -> (f64, f64) {
        let ChartLayout { left, top, plot_width, plot_height, .. } = self.layout;
        (
            left + self.chart.x.place(point.0) * plot_width,
            top + (1.0 - self.chart.y.place(point.1)) * plot_height,
        )
    }

    fn draw_bands(&mut self) {
        let ChartLayout { top, plot_height, text, .. } = *self.layout;
        for (index, band) in self.chart.bands.iter().enumerate() {
            let (from, _) = self.place((band.start, 0.0));
            let (to, _) = self.place((band.end, 0.0));
            if index % 2 == 0 {
                svg::rectangle(&mut self.svg, (from, top), (to - from, plot_height), Role::Band);
            }
            let name = Style::new(text - 1.0, "middle", Role::Muted);
            if svg::width_of(&band.name, name.size) < to - from + 12.0 {
                svg::text(&mut self.svg, ((from + to) / 2.0, top - 6.0), name, &band.name);
            }
            if index > 0 {
                svg::line(&mut self.svg, (from, top), (from, top + plot_height), Role::Axis);
            }
        }
    }

    fn draw_axes(&mut self) {
        let ChartLayout { left, top, plot_width, plot_height, text, .. } = *self.layout;
        let bottom = top + plot_height;
        let vertical = self.chart.y.ticks(self.layout.y_ticks);
        for (tick, label) in &vertical {
            let (_, y) = self.place((0.0, *tick));
            svg::line(&mut self.svg, (left, y), (left + plot_width, y), Role::Grid);
            svg::text(
                &mut self.svg,
                (left - 8.0, y + text * 0.35),
                Style::new(text, "end", Role::Muted),
                label,
            );
        }
        svg::line(&mut self.svg, (left, bottom), (left + plot_width, bottom), Role::Axis);
        for (tick, label) in self.chart.x.ticks(self.layout.x_ticks) {
            let (x, _) = self.place((tick, 0.0));
            svg::line(&mut self.svg, (x, bottom), (x, bottom + 5.0), Role::Axis);
            svg::text(
                &mut self.svg,
                (x, bottom + 7.0 + text),
                Style::new(text, "middle", Role::Muted),
                &label,
            );
        }
        let title = Style::new(text, "middle", Role::Ink);
        let below = bottom + 2.35 * text + if self.layout.whole { 13.0 } else { 10.0 };
        svg::text(&mut self.svg, (left + plot_width / 2.0, below), title, &self.chart.x.title);
        if self.layout.whole {
            let _ = write!(
                self.svg,
                "<g transform=\"translate(22 {:.1}) rotate(-90)\">",
                top + plot_height / 2.0
            );
            svg::text(&mut self.svg, (0.0, 0.0), title, &self.chart.y.title);
            self.svg.push_str("</g>\n");
        }
    }

    fn draw_guide(&mut self) {
        let guide: Vec<(f64, f64)> = self.chart.guide.iter().map(|point| self.place(*point)).collect();
        if guide.len() > 1 {
            let _ = writeln!(
                self.svg,
                "<polyline class=\"axis\" fill=\"none\" stroke=\"{}\" stroke-dasharray=\"3 4\" points=\"{}\"/>",
                Role::Axis.colour(),
                svg::points(&guide)
            );
        }
        self.draw_better();
    }

    /// Words and an arrow in the corner where the better results are.
    fn draw_better(&mut self) {
        let Some(better) = self.chart.better else { return };
        let ChartLayout { left, top, plot_width, plot_height, text, .. } = *self.layout;
        let bottom = top + plot_height - 8.0;
        // The arrow's tip is in the corner; `back` leads away from it.
        let (tip, back, anchor, words) = match better {
            Better::BelowRight => (left + plot_width - 6.0, -1.0, "end", "better: below and to the right"),
            Better::BelowLeft => (left + 6.0, 1.0, "start", "better: below and to the left"),
        };
        let length = text * 0.75;
        let _ = writeln!(
            self.svg,
            "<path class=\"axis\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\" \
             d=\"M{:.1} {:.1}L{tip:.1} {bottom:.1}M{tip:.1} {:.1}V{bottom:.1}H{:.1}\"/>",
            Role::Axis.colour(),
            tip + back * length,
            bottom - length,
            bottom - length * 0.6,
            tip + back * length * 0.6,
        );
        let style = Style::new(text, anchor, Role::Muted);
        svg::text(&mut self.svg, (tip + back * (length + 7.0), bottom - 1.0), style, words);
    }

    fn draw_series(&mut self, series: &ChartSeries) {
        series.open_group(&mut self.svg);
        for line in &series.faint_lines {
            self.draw_line(line, "faint", " stroke-width=\"1\" stroke-opacity=\"0.28\"");
        }
        let width = if series.emphasised { 3.4 } else { 1.9 };
        let style = format!(" stroke-width=\"{width}\"{}", svg::dash(series.dash()));
        self.draw_line(&series.line, "main", &style);
        for point in &series.faint_points {
            let (x, y) = self.place(*point);
            let _ = writeln!(
                self.svg,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.6\" fill=\"currentColor\" fill-opacity=\"0.35\"/>"
            );
        }
        for mark in &series.marks {
            self.draw_mark(series, mark);
        }
        self.svg.push_str("</g>\n");
    }

    fn draw_line(&mut self, line: &[(f64, f64)], class: &str, style: &str) {
        let places: Vec<(f64, f64)> = line.iter().map(|point| self.place(*point)).collect();
        if !places.is_empty() {
            let _ = writeln!(
                self.svg,
                "<polyline class=\"{class}\" fill=\"none\" stroke=\"currentColor\" stroke-linejoin=\"round\"{style} \
                 points=\"{}\"/>",
                svg::points(&thin_out(&places))
            );
        }
    }

    fn draw_mark(&mut self, series: &ChartSeries, mark: &Mark) {
        let (x, y) = self.place(mark.at);
        let bars = [
            mark.x_interval
                .map(|(low, high)| (self.place((low, mark.at.1)), self.place((high, mark.at.1)), (0.0, 4.0))),
            mark.y_interval
                .map(|(low, high)| (self.place((mark.at.0, low)), self.place((mark.at.0, high)), (4.0, 0.0))),
        ];
        for (low, high, cap) in bars.into_iter().flatten() {
            let (from, to) = (self.inside(low), self.inside(high));
            let mut path = format!("M{:.1} {:.1}L{:.1} {:.1}", from.0, from.1, to.0, to.1);
            // An end without a cap lies outside of the plane.
            for (end, _) in [(from, low), (to, high)].iter().filter(|(inside, end)| inside == end) {
                let (dx, dy) = cap;
                let _ =
                    write!(path, "M{:.1} {:.1}L{:.1} {:.1}", end.0 - dx, end.1 - dy, end.0 + dx, end.1 + dy);
            }
            let _ = writeln!(
                self.svg,
                "<path fill=\"none\" stroke=\"currentColor\" stroke-width=\"1.4\" stroke-opacity=\"0.55\" d=\"{path}\"/>"
            );
        }
        let small = if mark.label.is_empty() { 0.6 } else { 1.0 };
        let radius = if series.emphasised { 6.5 } else { 5.0 };
        let _ = write!(self.svg, "<g class=\"mark\"><title>{}</title>", svg::escape(&mark.hint));
        series.draw_shape(&mut self.svg, (x, y), radius * small);
        self.svg.push_str("</g>\n");
    }

    /// The nearest place in the plane.
    fn inside(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let ChartLayout { left, top, plot_width, plot_height, .. } = *self.layout;
        (x.clamp(left, left + plot_width), y.clamp(top, top + plot_height))
    }

    /// Labels of marks, each where it covers neither a mark nor another label, if there is such a place.
    fn draw_labels(&mut self) {
        let size = self.layout.text;
        let marks: Vec<(&ChartSeries, &Mark)> = (self.chart.series.iter())
            .flat_map(|series| series.marks.iter().map(move |mark| (series, mark)))
            .filter(|(_, mark)| !mark.label.is_empty())
            .collect();
        let around =
            |(x, y): (f64, f64)| Area { left: x - 8.0, top: y - 8.0, right: x + 8.0, bottom: y + 8.0 };
        let mut taken: Vec<Area> = marks.iter().map(|(_, mark)| around(self.place(mark.at))).collect();
        let ChartLayout { left, top, plot_width, plot_height, .. } = *self.layout;
        let plane = Area { left, top, right: left + plot_width, bottom: top + plot_height };
        for (series, mark) in marks {
            let point = self.place(mark.at);
            let width = svg::width_of(&mark.label, size);
            // The legend names what has no room for a label.
            let Some(label) = free_place(point, width, size, &plane, &taken) else { continue };
            if label.is_far {
                let end = (label.at.0, label.at.1 - size * 0.35);
                let _ = writeln!(
                    self.svg,
                    "<path fill=\"none\" stroke=\"currentColor\" stroke-opacity=\"0.35\" d=\"M{:.1} {:.1}L{:.1} {:.1}\"/>",
                    point.0, point.1, end.0, end.1
                );
            }
            taken.push(label.area);
            let style = Style::new(size, label.anchor, Role::Ink).bold(series.emphasised).rim();
            svg::text(&mut self.svg, label.at, style, &mark.label);
        }
    }

    fn draw_legend(&mut self) {
        let ChartLayout { width, left, top, plot_width, .. } = *self.layout;
        let start = left + plot_width + 32.0;
        let columns = [width - 90.0, width - 24.0];
        let mut y = top + 8.0;
        for (right, title) in columns.iter().zip(&self.chart.legend_titles) {
            svg::text(&mut self.svg, (*right, y), Style::new(12.0, "end", Role::Muted), title);
        }
        y += 24.0;
        for series in &self.chart.series {
            series.open_group(&mut self.svg);
            series.draw_key(&mut self.svg, (start, y - 4.5), 26.0);
            self.svg.push_str("</g>\n");
            let style = |anchor| Style::new(14.0, anchor, Role::Ink).bold(series.emphasised);
            svg::text(&mut self.svg, (start + 36.0, y), style("start"), &series.name);
            for (right, value) in columns.iter().zip(&series.values) {
                svg::text(&mut self.svg, (*right, y), style("end"), value);
            }
            for line in &series.details {
                y += 16.0;
                svg::text(&mut self.svg, (start + 36.0, y), Style::new(11.0, "start", Role::Muted), line);
            }
            y += 27.0;
        }
    }
}

/// Where a label goes.
struct Label {
    anchor: &'static str,
    at: (f64, f64),
    area: Area,
    /// A line leads from its mark to it.
    is_far: bool,
}

/// A place for a label beside its mark, or else a little away, where it covers nothing; None if there is none.
fn free_place((x, y): (f64, f64), width: f64, size: f64, plane: &Area, taken: &[Area]) -> Option<Label> {
    let middle = y + size * 0.35;
    let beside = [
        ("start", x + 9.0, y - 9.0),
        ("end", x - 9.0, y - 9.0),
        ("start", x + 9.0, y + 8.0 + size),
        ("end", x - 9.0, y + 8.0 + size),
        ("start", x + 12.0, middle),
        ("end", x - 12.0, middle),
        ("middle", x, y - 13.0),
        ("middle", x, y + 12.0 + size),
    ];
    let away = (2..=8).flat_map(|line| {
        let height = f64::from(line) * size * 1.35;
        [("start", 18.0, height), ("end", -18.0, height), ("start", 18.0, -height), ("end", -18.0, -height)]
    });
    let away = away.map(|(anchor, dx, dy)| (anchor, x + dx, middle + dy));
    let label = |((anchor, x, y), is_far): ((&'static str, f64, f64), bool)| {
        let start = match anchor {
            "start" => x,
            "end" => x - width,
            _ => x - width / 2.0,
        };
        let area = Area { left: start, top: y - size, right: start + width, bottom: y + size * 0.3 };
        Label { anchor, at: (x, y), area, is_far }
    };
    let places = beside.into_iter().map(|place| (place, false)).chain(away.map(|place| (place, true)));
    let is_free =
        |label: &Label| label.area.is_within(plane) && !taken.iter().any(|other| label.area.meets(other));
    places.map(label).find(is_free)
}

/// A rectangle that a label takes.
struct Area {
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

impl Area {
    fn meets(&self, other: &Area) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }

    fn is_within(&self, other: &Area) -> bool {
        self.left >= other.left
            && self.right <= other.right
            && self.top >= other.top
            && self.bottom <= other.bottom
    }
}

/// At most four points for each pixel column: first, lowest, highest, last. What was to be seen stays.
fn thin_out(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut kept: Vec<(f64, f64)> = Vec::new();
    for column in points.chunk_by(|left, right| left.0.floor() == right.0.floor()) {
        if column.len() <= 4 {
            kept.extend(column);
            continue;
        }
        let by_height = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let mut chosen = vec![column[0], column[column.len() - 1]];
        chosen.extend(column.iter().min_by(by_height));
        chosen.extend(column.iter().max_by(by_height));
        chosen.sort_by(|a, b| a.0.total_cmp(&b.0));
        kept.extend(chosen);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_cover_nothing() {
        let plane = Area { left: 0.0, top: 0.0, right: 700.0, bottom: 400.0 };
        // Marks on one point, in a heap, and in a corner.
        for spread in [0.0, 3.0, 12.0, 40.0] {
            for centre in [(350.0, 200.0), (5.0, 5.0), (570.0, 350.0)] {
                let points = (0..12).map(|i| {
                    (centre.0 + spread * f64::from(i % 4), centre.1 + spread * f64::from(i / 4) / 2.0)
                });
                let mut taken: Vec<Area> = Vec::new();
                for point in points {
                    if let Some(label) = free_place(point, 120.0, 13.0, &plane, &taken) {
                        assert!(!taken.iter().any(|other| other.meets(&label.area)), "{point:?}");
                        taken.push(label.area);
                    }
                }
                assert!(taken.len() >= 6, "{} of 12 labels at {centre:?}, {spread}", taken.len());
            }
        }
    }

    #[test]
    fn peaks_survive_thinning() {
        let points: Vec<(f64, f64)> =
            (0..1000).map(|i| (i as f64 / 1000.0, if i == 500 { -50.0 } else { 1.0 })).collect();
        let thin = thin_out(&points);
        assert!(thin.len() <= 4);
        assert!(thin.contains(&(0.5, -50.0)));
    }
}
