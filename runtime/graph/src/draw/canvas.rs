//! Shapes of the memory map as SVG elements.

use svg::node::element::{Definitions, Group, Line, Path, Pattern, Rectangle, Text, Title};
use svg::{Document, Node};

/// Left, top, width, height.
pub(super) type Area = (f64, f64, f64, f64);

/// Width of a character of the small font, on the safe side.
const CHARACTER: f64 = 6.3;
const RED: &str = super::RED;

/// How a text looks.
#[derive(Clone, Copy)]
pub(super) struct Ink {
    size: f64,
    bold: bool,
    fill: &'static str,
    anchor: &'static str,
}

impl Ink {
    pub(super) fn heading() -> Self {
        Self { size: 18.0, bold: true, ..Self::plain() }
    }

    pub(super) fn plain() -> Self {
        Self { size: 12.0, bold: false, fill: "#222222", anchor: "start" }
    }

    pub(super) fn small() -> Self {
        Self { size: 10.5, ..Self::plain() }
    }

    pub(super) fn bold(self) -> Self {
        Self { bold: true, ..self }
    }

    pub(super) fn fill(self, fill: &'static str) -> Self {
        Self { fill, ..self }
    }

    pub(super) fn right(self) -> Self {
        Self { anchor: "end", ..self }
    }

    fn centred(self) -> Self {
        Self { anchor: "middle", ..self }
    }
}

pub(super) struct Canvas {
    content: Group,
}

impl Canvas {
    pub(super) fn new() -> Self {
        Self { content: Group::new().set("font-family", "DejaVu Sans, Verdana, sans-serif") }
    }

    pub(super) fn finish(self, width: f64, height: f64) -> String {
        let stripes = Pattern::new()
            .set("id", "danger")
            .set("width", 8)
            .set("height", 8)
            .set("patternUnits", "userSpaceOnUse")
            .set("patternTransform", "rotate(45)")
            .add(Rectangle::new().set("width", 3).set("height", 8).set("fill", RED));
        let head = Path::new().set("d", "M0,0 L7,3 L0,6 z").set("fill", "#555555");
        let marker = svg::node::element::Marker::new()
            .set("id", "head")
            .set("markerWidth", 7)
            .set("markerHeight", 6)
            .set("refX", 6.5)
            .set("refY", 3)
            .set("orient", "auto")
            .add(head);
        Document::new()
            .set("viewBox", (0, 0, width.ceil() as i64, height.ceil() as i64))
            .set("width", width.ceil() as i64)
            .set("height", height.ceil() as i64)
            .add(Definitions::new().add(stripes).add(marker))
            .add(Rectangle::new().set("width", "100%").set("height", "100%").set("fill", "white"))
            .add(self.content)
            .to_string()
    }

    fn add(&mut self, node: impl Node) {
        self.content.append(node);
    }

    pub(super) fn text(&mut self, x: f64, y: f64, text: &str, ink: Ink) {
        let mut element = Text::new(text)
            .set("x", round(x))
            .set("y", round(y))
            .set("font-size", ink.size)
            .set("fill", ink.fill)
            .set("text-anchor", ink.anchor);
        if ink.bold {
            element.assign("font-weight", "bold");
        }
        self.add(element);
    }

    /// A text on as many lines as it needs; the baseline of what comes after it.
    pub(super) fn paragraph(&mut self, x: f64, y: f64, width: f64, text: &str, ink: Ink) -> f64 {
        let room = (width / (CHARACTER * 1.08 * ink.size / 10.5)) as usize;
        let (mut line, mut y) = (String::new(), y);
        for word in text.split_whitespace() {
            if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > room {
                self.text(x, y, &line, ink);
                y += ink.size * 1.4;
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line += word;
        }
        self.text(x, y, &line, ink);
        y + ink.size * 1.5
    }

    /// As much of `text` as fits in `width`; nothing if that would be less than three characters.
    pub(super) fn clipped(&mut self, x: f64, y: f64, width: f64, text: &str, ink: Ink) {
        let room = (width / (CHARACTER * ink.size / 10.5)) as usize;
        if text.chars().count() <= room {
            self.text(x, y, text, ink);
        } else if room >= 3 {
            let cut: String = text.chars().take(room - 1).collect();
            self.text(x, y, &(cut + "…"), ink);
        }
    }

    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, width: f64) {
        let line = Line::new()
            .set("x1", round(from.0))
            .set("y1", round(from.1))
            .set("x2", round(to.0))
            .set("y2", round(to.1))
            .set("stroke", colour)
            .set("stroke-width", width);
        self.add(line);
    }

    pub(super) fn arrow(&mut self, from: (f64, f64), to: (f64, f64), dashed: bool) {
        let bend = ((to.0 - from.0) / 2.0).max(4.0);
        let curve = format!(
            "M{},{} C{},{} {},{} {},{}",
            round(from.0),
            round(from.1),
            round(from.0 + bend),
            round(from.1),
            round(to.0 - bend),
            round(to.1),
            round(to.0),
            round(to.1)
        );
        let mut path = Path::new()
            .set("d", curve)
            .set("fill", "none")
            .set("stroke", "#555555")
            .set("stroke-width", 1.1)
            .set("marker-end", "url(#head)");
        if dashed {
            path.assign("stroke-dasharray", "4 3");
        }
        self.add(path);
    }

    /// A coloured box, with a double outline if `lasting`; `hint` is shown under the pointer.
    pub(super) fn tile(&mut self, area: Area, colour: &str, (stroke, weight): (&str, f64), lasting: bool, hint: &str) {
        let rectangle = rectangle(area)
            .set("rx", 2)
            .set("fill", colour)
            .set("fill-opacity", if lasting { 0.18 } else { 0.45 })
            .set("stroke", stroke)
            .set("stroke-width", weight);
        self.add(Group::new().add(Title::new(hint)).add(rectangle));
        if lasting {
            let (x, y, width, height) = area;
            let inner = self::rectangle((x + 2.5, y + 2.5, width - 5.0, height - 5.0));
            self.add(inner.set("fill", "none").set("stroke", stroke).set("stroke-width", weight / 2.0));
        }
    }

    pub(super) fn danger(&mut self, area: Area, hint: &str) {
        let stripes = rectangle(area).set("fill", "url(#danger)").set("fill-opacity", 0.55);
        let outline = rectangle(area).set("fill", "none").set("stroke", RED).set("stroke-width", 2);
        self.add(Group::new().add(Title::new(hint)).add(stripes).add(outline));
    }

    /// Red text on white, centred.
    pub(super) fn badge(&mut self, x: f64, y: f64, text: &str) {
        let width = text.chars().count() as f64 * CHARACTER + 10.0;
        let back = rectangle((x - width / 2.0, y - 8.0, width, 16.0));
        self.add(back.set("rx", 3).set("fill", "white").set("stroke", RED).set("stroke-width", 1));
        self.text(x, y + 4.0, text, Ink::small().bold().fill(RED).centred());
    }

    /// A small triangle that stands on `(x, y)`.
    pub(super) fn mark(&mut self, x: f64, y: f64, filled: bool) {
        let triangle = format!("M{},{} l4,0 l-4,-6 l-4,6 z", round(x), round(y));
        let fill = if filled { "#222222" } else { "white" };
        self.add(Path::new().set("d", triangle).set("fill", fill).set("stroke", "#222222").set("stroke-width", 0.9));
    }

    /// A range that is cut short.
    pub(super) fn gap(&mut self, (x, y, width): (f64, f64, f64), text: &str) {
        let area = rectangle((x, y + 1.0, width, 14.0));
        self.add(area.set("fill", "#f4f4f4").set("stroke", "#bbbbbb").set("stroke-dasharray", "3 3"));
        self.text(x + 6.0, y + 12.0, text, Ink::small().fill("#777777"));
    }
}

fn rectangle((x, y, width, height): Area) -> Rectangle {
    Rectangle::new()
        .set("x", round(x))
        .set("y", round(y))
        .set("width", round(width.max(1.0)))
        .set("height", round(height.max(1.0)))
}

/// Tenths of a pixel are enough, and keep files small.
fn round(x: f64) -> f64 {
    (x * 10.0).round() / 10.0
}
