from catalog import program

FORMATS = (("libx264", "mp4", "aac"), ("mpeg4", "avi", "mp2"), ("libvpx-vp9", "webm", "libopus"), ("ffv1", "mkv", "flac"))


@program("ffmpeg", needs={"ffmpeg": "ffmpeg", "ffprobe": "ffmpeg"}, proves=["ffmpeg -version"], watches=["ffmpeg"],
         quick_limit_s=150, full_limit_s=500)
def ffmpeg(test):
    """ffmpeg: encoders and decoders in threads, filters, two encodings at once; each frame as without the library"""
    seconds = 2 if test.quick else 12
    base = ["ffmpeg", "-hide_banner", "-loglevel", "error", "-nostdin", "-y", "-bitexact"]
    sources = ["-f", "lavfi", "-i", f"testsrc2=size=640x360:rate=25:duration={seconds}",
               "-f", "lavfi", "-i", f"sine=frequency=440:duration={seconds}"]
    for video, container, audio in FORMATS[:2] if test.quick else FORMATS:
        output = test.folder / f"{video}.{container}"
        test.run([*base, *sources, "-map", "0:v", "-map", "1:a", "-c:v", video, "-c:a", audio, "-threads", "4", "-b:v", "1M",
                  output], limit_s=200)
        # framemd5 decodes, and prints a sum for each frame of picture and sound.
        sums = test.same_as_plain([*base, "-threads", "4", "-i", output, "-f", "framemd5", "-"]).stdout
        frames = [line for line in sums.splitlines() if line.startswith("0,")]
        test.expect(len(frames) == 25 * seconds, f"{video}: {len(frames)} frames came back, not {25 * seconds}")
    filters = ("[0:v]split=3[a][b][c];[a]hflip,scale=320:180[x];[b]gblur=sigma=4,scale=320:180[y];[x][y]hstack[z];"
               "[c]crop=640:180,edgedetect[w];[z][w]vstack,format=yuv420p[out]")
    test.same_as_plain([*base, *sources[:4], "-filter_complex", filters, "-map", "[out]", "-f", "framemd5", "-"])
    test.run([*base, "-i", test.folder / "mpeg4.avi", "-c:v", "mpeg4", "-threads", "2", "one.avi", "-c:v", "ffv1", "-threads",
              "2", "-an", "two.mkv", "-vn", "-c:a", "flac", "three.flac"])
    for name in ("one.avi", "two.mkv", "three.flac"):
        told = test.run(["ffprobe", "-v", "error", "-show_entries", "format=duration", "-of", "csv=p=0", name]).stdout
        test.expect(abs(float(told) - seconds) < 0.3, f"{name} lasts {told.strip()} s, not {seconds}")
