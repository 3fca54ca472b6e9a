//! Sites in the format of pprof (profile.proto of github.com/google/pprof), which its own tool, speedscope and
//! collectors of profiles read. The few fields that are needed are encoded here, uncompressed, which readers take, too.

use std::collections::HashMap;

use crate::sites::{Frame, Site};

/// A message of protocol buffers that is being written.
#[derive(Default)]
struct Encoded(Vec<u8>);

impl Encoded {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(&mut self, field: u64, value: u64) {
        self.varint(field << 3);
        self.varint(value);
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn numbers(&mut self, field: u64, values: impl IntoIterator<Item = u64>) {
        let mut packed = Encoded::default();
        values.into_iter().for_each(|value| packed.varint(value));
        self.bytes(field, &packed.0);
    }
}

/// Texts by number; 0 is the empty one.
struct Texts {
    numbers: HashMap<String, u64>,
    all: Vec<String>,
}

impl Texts {
    fn number(&mut self, text: &str) -> u64 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.all.len() as u64;
        self.numbers.insert(text.into(), number);
        self.all.push(text.into());
        number
    }
}

/// What the two values of a sample are called: their number, and their bytes.
pub type ValueNames = (&'static str, &'static str);

/// As Go calls what is live, and what was allocated. Servers that collect profiles know these alone.
pub const LIVE: ValueNames = ("inuse_objects", "inuse_space");
/// The same of what was allocated, freed or not.
pub const ALLOCATED: ValueNames = ("alloc_objects", "alloc_space");

/// The profile. `time_ns`: since the epoch, when it began; `mean_bytes`: between two samples.
pub fn encode(sites: &[Site], names: ValueNames, time_ns: u64, duration_ns: u64, mean_bytes: u64) -> Vec<u8> {
    let mut texts = Texts { numbers: HashMap::new(), all: Vec::new() };
    let mut profile = Encoded::default();
    let mut locations: HashMap<&Frame, u64> = HashMap::new();
    let mut functions: HashMap<(&str, &str), u64> = HashMap::new();
    texts.number("");
    let value_type = |texts: &mut Texts, kind: &str, unit: &str| {
        let mut message = Encoded::default();
        message.number(1, texts.number(kind));
        message.number(2, texts.number(unit));
        message.0
    };
    for (kind, unit) in [(names.0, "count"), (names.1, "bytes")] {
        profile.bytes(1, &value_type(&mut texts, kind, unit));
    }
    let period_type = value_type(&mut texts, "space", "bytes");
    for site in sites {
        let mut ids = Vec::with_capacity(site.frames.len());
        for frame in &site.frames {
            let next = locations.len() as u64 + 1;
            let id = *locations.entry(frame).or_insert(next);
            ids.push(id);
            if id != next {
                continue;
            }
            let next = functions.len() as u64 + 1;
            let (file, line_number) = place_of(frame);
            let function = *functions.entry((&frame.function, file)).or_insert(next);
            if function == next {
                let mut message = Encoded::default();
                message.number(1, function);
                let name = texts.number(&frame.function);
                message.number(2, name);
                message.number(3, name);
                message.number(4, texts.number(file));
                profile.bytes(5, &message.0);
            }
            let mut line = Encoded::default();
            line.number(1, function);
            line.number(2, line_number.into());
            let mut location = Encoded::default();
            location.number(1, id);
            location.bytes(4, &line.0);
            profile.bytes(4, &location.0);
        }
        let mut sample = Encoded::default();
        sample.numbers(1, ids);
        sample.numbers(2, [site.blocks.round() as u64, site.bytes.round() as u64]);
        profile.bytes(2, &sample.0);
    }
    profile.number(9, time_ns);
    profile.number(10, duration_ns);
    profile.bytes(11, &period_type);
    profile.number(12, mean_bytes);
    texts.all.iter().for_each(|text| profile.bytes(6, text.as_bytes()));
    profile.0
}

/// The file and line that readers show: of the source, if it is known.
fn place_of(frame: &Frame) -> (&str, u32) {
    frame.source.as_ref().map_or((&frame.file, frame.line), |source| (&source.file, source.line))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fields of a message: number, and its value or its bytes.
    fn decode(mut bytes: &[u8]) -> Vec<(u64, u64, Vec<u8>)> {
        fn varint(bytes: &mut &[u8]) -> u64 {
            let mut value = 0;
            for shift in (0..).step_by(7) {
                let byte = bytes[0];
                *bytes = &bytes[1..];
                value |= u64::from(byte & 0x7f) << shift;
                if byte < 0x80 {
                    return value;
                }
            }
            unreachable!()
        }
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let value = varint(&mut bytes);
            let mut inside = Vec::new();
            if key & 7 == 2 {
                inside = bytes[..value as usize].to_vec();
                bytes = &bytes[value as usize..];
            }
            fields.push((key >> 3, value, inside));
        }
        fields
    }

    #[test]
    fn a_reader_finds_every_site() {
        let frame = |function: &str, line| Frame::new(function, "a.rb", line);
        let sites = [
            Site {
                bytes: 1e6,
                blocks: 300.4,
                samples: 2,
                frames: vec![frame("f", 3), frame("main", 9)],
                ..Site::default()
            },
            Site { bytes: 5.0, blocks: 1.0, samples: 1, frames: vec![frame("main", 9)], ..Site::default() },
        ];
        let fields = decode(&encode(&sites, LIVE, 7, 8, 512));
        let all = |number: u64| fields.iter().filter(move |field| field.0 == number);
        let texts: Vec<String> = all(6).map(|field| String::from_utf8(field.2.clone()).unwrap()).collect();
        assert_eq!(texts[0], "");
        let text = |fields: &[(u64, u64, Vec<u8>)], number: u64| {
            texts[fields.iter().find(|field| field.0 == number).unwrap().1 as usize].clone()
        };
        let types: Vec<_> =
            all(1).map(|field| (text(&decode(&field.2), 1), text(&decode(&field.2), 2))).collect();
        assert_eq!(types, [("inuse_objects".into(), "count".into()), ("inuse_space".into(), "bytes".into())]);
        let names: Vec<String> = all(5).map(|field| text(&decode(&field.2), 2)).collect();
        assert_eq!(names, ["f", "main"]);
        let samples: Vec<_> = all(2).map(|field| decode(&field.2)).collect();
        assert_eq!(samples[0][0].2, [1, 2], "innermost first");
        assert_eq!(samples[1][0].2, [2], "a place has one location");
        // 300 and 1,000,000 as varints.
        assert_eq!(samples[0][1].2, [0xac, 0x02, 0xc0, 0x84, 0x3d]);
        let locations: Vec<_> = all(4).map(|field| decode(&field.2)).collect();
        assert_eq!(decode(&locations[0][1].2), [(1, 1, vec![]), (2, 3, vec![])]);
        assert_eq!(all(12).next().unwrap().1, 512);
    }
}
