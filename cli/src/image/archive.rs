//! Images in archives, as `docker image save` and OCI tools write them, and in OCI layout directories. Layers are
//! laid over each other in memory; contents stay where they are until asked for. Compressed layers are unpacked into
//! a temporary directory, which goes with this.
//!
//! Formats: github.com/opencontainers/image-spec (layout, manifest, layer), and manifest.json of `docker image save`.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use serde_json::Value;

use crate::base::failure::{Context, Failure, Result};
use crate::base::root::{Node, Root};
use crate::image::temporary::Temporary;

/// A piece of a file that holds the content of one file of the archive.
#[derive(Debug, Clone)]
struct Piece {
    file: PathBuf,
    offset: u64,
    length: u64,
}

/// The file system of an image.
pub(super) struct ArchiveRoot {
    nodes: BTreeMap<String, (Node, Option<Piece>)>,
    temporary: Temporary,
    copies: Cell<u32>,
}

/// Opens an archive, or an OCI layout directory. Returns its file system and its configuration.
pub(super) fn open(path: &Path) -> Result<(ArchiveRoot, Value)> {
    let temporary = Temporary::new()?;
    let blobs = match path.is_dir() {
        true => Blobs::Directory(path.to_path_buf()),
        false => Blobs::Pieces(index_archive(path, temporary.path())?),
    };
    let (config, layers) = manifest(&blobs, path)?;
    let mut nodes = BTreeMap::new();
    for (number, layer) in layers.iter().enumerate() {
        let shown = || format!("read layer {} of {} of {}", number + 1, layers.len(), path.display());
        let piece = blobs.piece(layer)?;
        let plain = uncompressed(piece, &temporary.path().join(format!("layer-{number}"))).cannot(shown)?;
        add_layer(&mut nodes, &plain).cannot(shown)?;
    }
    Ok((ArchiveRoot { nodes, temporary, copies: Cell::new(0) }, config))
}

/// Where the parts of an image are.
enum Blobs {
    Directory(PathBuf),
    Pieces(BTreeMap<String, Piece>),
}

impl Blobs {
    fn piece(&self, name: &str) -> Result<Piece> {
        let found = match self {
            Blobs::Pieces(pieces) => pieces.get(name).cloned(),
            Blobs::Directory(path) => {
                let file = path.join(name);
                let length = std::fs::metadata(&file).map(|metadata| metadata.len());
                length.ok().map(|length| Piece { file, offset: 0, length })
            }
        };
        found.ok_or_else(|| Failure::new(format!("the image is not complete: {name} is not in it")))
    }

    fn json(&self, name: &str) -> Result<Value> {
        let piece = self.piece(name)?;
        let text = piece.read().cannot(|| format!("read {name} of the image"))?;
        serde_json::from_slice(&text).cannot(|| format!("understand {name} of the image"))
    }

    fn has(&self, name: &str) -> bool {
        self.piece(name).is_ok()
    }
}

/// The configuration of the image and the names of its layers, lowest first.
fn manifest(blobs: &Blobs, path: &Path) -> Result<(Value, Vec<String>)> {
    let names = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(Value::as_str).map(String::from).collect()
    };
    if blobs.has("manifest.json") {
        let images = blobs.json("manifest.json")?;
        let image = &images[0];
        let config = image["Config"].as_str().unwrap_or_default();
        return Ok((blobs.json(config)?, names(&image["Layers"])));
    }
    if !blobs.has("index.json") {
        return Err(Failure::new(format!(
            "{} is not an image: it has neither manifest.json (docker image save) nor index.json (OCI)",
            path.display()
        ))
        .advise("for an unpacked root file system give its directory"));
    }
    let mut index = blobs.json("index.json")?;
    // An index may lead to another one, of several machines, and from there to the manifest.
    for _ in 0..4 {
        let Some(chosen) = for_this_machine(&index) else { break };
        index = blobs.json(&blob_name(chosen)?)?;
    }
    let config = blobs.json(&blob_name(&index["config"])?)?;
    let layers = index["layers"].as_array().into_iter().flatten().map(blob_name);
    Ok((config, layers.collect::<Result<Vec<String>>>()?))
}

/// Of the manifests in an index that for this machine, or else the first that is for one at all.
fn for_this_machine(index: &Value) -> Option<&Value> {
    let manifests = index["manifests"].as_array()?;
    let own = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let architecture = |manifest: &&Value| manifest["platform"]["architecture"].as_str().map(String::from);
    let own_one = manifests.iter().find(|manifest| architecture(manifest).as_deref() == Some(own));
    // Attestations stand there as images of an unknown machine.
    own_one.or(manifests.iter().find(|manifest| architecture(manifest).as_deref() != Some("unknown")))
}

/// The file of a blob, from its descriptor.
fn blob_name(descriptor: &Value) -> Result<String> {
    let digest = descriptor["digest"].as_str().and_then(|digest| digest.split_once(':'));
    let (algorithm, hash) = digest.ok_or_else(|| Failure::new("the image's manifest can't be understood"))?;
    Ok(format!("blobs/{algorithm}/{hash}"))
}

/// Where the files of an archive lie in it.
fn index_archive(path: &Path, temporary: &Path) -> Result<BTreeMap<String, Piece>> {
    let reading = || format!("read {}", path.display());
    let length = std::fs::metadata(path).cannot(reading)?.len();
    let whole = Piece { file: path.to_path_buf(), offset: 0, length };
    let plain = uncompressed(whole, &temporary.join("archive")).cannot(reading)?;
    let mut archive = tar::Archive::new(File::open(&plain.file).cannot(reading)?);
    let mut pieces = BTreeMap::new();
    let not_an_archive =
        |error: io::Error| Failure::new(format!("{} is not a tar archive: {error}", path.display()));
    for entry in archive.entries_with_seek().map_err(not_an_archive)? {
        let entry = entry.map_err(not_an_archive)?;
        let name = entry.path().map_err(not_an_archive)?.to_string_lossy().into_owned();
        let name = name.trim_start_matches("./").to_string();
        let header = entry.header();
        if let (true, Ok(Some(target))) = (header.entry_type().is_symlink(), entry.link_name()) {
            // Older versions of docker link layers that are the same: ../DIGEST/layer.tar.
            let target = target.to_string_lossy().trim_start_matches("../").to_string();
            if let Some(piece) = pieces.get(&target).cloned() {
                pieces.insert(name, piece);
            }
            continue;
        }
        let piece =
            Piece { file: plain.file.clone(), offset: entry.raw_file_position(), length: entry.size() };
        pieces.insert(name, piece);
    }
    Ok(pieces)
}

impl Piece {
    fn read(&self) -> io::Result<Vec<u8>> {
        let mut content = vec![0; self.length as usize];
        File::open(&self.file)?.read_exact_at(&mut content, self.offset)?;
        Ok(content)
    }

    fn open(&self) -> io::Result<PieceReader> {
        let mut file = File::open(&self.file)?;
        file.seek(SeekFrom::Start(self.offset))?;
        Ok(PieceReader { file, start: self.offset, length: self.length, at: 0 })
    }
}

/// A piece as a file of its own.
struct PieceReader {
    file: File,
    start: u64,
    length: u64,
    at: u64,
}

impl Read for PieceReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min((self.length - self.at.min(self.length)) as usize);
        let count = self.file.read_at(&mut buffer[..most], self.start + self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Seek for PieceReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.length.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

/// The piece itself if it is not compressed, else a file at `unpacked` with its content.
fn uncompressed(piece: Piece, unpacked: &Path) -> io::Result<Piece> {
    let mut packed = io::BufReader::new(piece.open()?);
    let length = match packed.fill_buf()? {
        [0x1f, 0x8b, ..] => {
            io::copy(&mut flate2::bufread::MultiGzDecoder::new(packed), &mut File::create(unpacked)?)?
        }
        // A frame, or a skippable one, with which some tools begin.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
            unpack_zstd(packed, &mut File::create(unpacked)?)?
        }
        _ => return Ok(piece),
    };
    Ok(Piece { file: unpacked.to_path_buf(), offset: 0, length })
}

/// Writes the content of all zstd frames there are, which podman's zstd:chunked has for each file of a layer. Skippable
/// ones hold other things. Returns how many bytes it wrote.
fn unpack_zstd(mut packed: impl BufRead, out: &mut impl Write) -> io::Result<u64> {
    let mut decoder = FrameDecoder::new();
    let mut written = 0;
    while !packed.fill_buf()?.is_empty() {
        match StreamingDecoder::new_with_decoder(&mut packed, &mut decoder) {
            Ok(mut frame) => written += io::copy(&mut frame, out)?,
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length, ..
            })) => {
                let skipped = io::copy(&mut packed.by_ref().take(length.into()), &mut io::sink())?;
                if skipped < u64::from(length) {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            Err(error) => return Err(io::Error::other(error)),
        }
    }
    Ok(written)
}

/// Lays a layer over those below it.
fn add_layer(nodes: &mut BTreeMap<String, (Node, Option<Piece>)>, layer: &Piece) -> io::Result<()> {
    let mut archive = tar::Archive::new(layer.open()?);
    for entry in archive.entries_with_seek()? {
        let entry = entry?;
        let name = entry.path()?.to_string_lossy().into_owned();
        let path = format!("/{}", name.trim_start_matches("./").trim_matches('/'));
        let (directory, file) = path.rsplit_once('/').unwrap_or(("", &path));
        if file == ".wh..wh..opq" {
            remove_below(nodes, directory);
            continue;
        }
        if let Some(removed) = file.strip_prefix(".wh.") {
            let removed = format!("{directory}/{removed}");
            remove_below(nodes, &removed);
            nodes.remove(&removed);
            continue;
        }
        let kind = entry.header().entry_type();
        let link = || -> io::Result<String> {
            Ok(entry.link_name()?.map_or_else(String::new, |target| target.to_string_lossy().into_owned()))
        };
        if kind.is_dir() {
            nodes.insert(path, (Node::Directory, None));
        } else if kind.is_symlink() {
            nodes.insert(path, (Node::Link(link()?), None));
        } else if kind.is_hard_link() {
            let target = format!("/{}", link()?.trim_start_matches("./").trim_matches('/'));
            if let Some(node) = nodes.get(&target).cloned() {
                nodes.insert(path, node);
            }
        } else if kind.is_file() {
            let piece = Piece {
                file: layer.file.clone(),
                offset: layer.offset + entry.raw_file_position(),
                length: entry.size(),
            };
            nodes.insert(path, (Node::File(entry.header().mode()?), Some(piece)));
        }
    }
    Ok(())
}

fn remove_below(nodes: &mut BTreeMap<String, (Node, Option<Piece>)>, directory: &str) {
    let start = format!("{directory}/");
    nodes.retain(|path, _| !path.starts_with(&start));
}

impl Root for ArchiveRoot {
    fn node(&self, path: &str) -> Option<Node> {
        let found = self.nodes.get(path).map(|(node, _)| node.clone());
        // Layers need not name the directories of their files.
        found.or_else(|| (!self.list(path).is_empty()).then_some(Node::Directory))
    }

    fn file(&self, path: &str) -> io::Result<PathBuf> {
        let piece = self.nodes.get(path).and_then(|(_, piece)| piece.as_ref());
        let piece = piece.ok_or(io::ErrorKind::NotFound)?;
        let number = self.copies.get();
        self.copies.set(number + 1);
        // Under its own name, which tells versions.
        let directory = self.temporary.path().join(number.to_string());
        std::fs::create_dir(&directory)?;
        let copy = directory.join(path.rsplit('/').next().unwrap_or("file"));
        let mut file = File::create(&copy)?;
        io::copy(&mut piece.open()?, &mut file)?;
        file.flush()?;
        Ok(copy)
    }

    fn list(&self, path: &str) -> Vec<String> {
        let start = format!("{}/", path.trim_end_matches('/'));
        let below = self.nodes.range(start.clone()..).take_while(|(path, _)| path.starts_with(&start));
        let mut names: Vec<String> =
            below.filter_map(|(path, _)| path[start.len()..].split('/').next().map(String::from)).collect();
        names.dedup();
        names
    }
}
