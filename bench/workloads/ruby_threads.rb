#!/usr/bin/ruby
# frozen_string_literal: true

# ruby_threads: a Ruby program that uses memory the way busy threaded Ruby servers do.
#
# Feeder threads post a fixed number of seeded tasks to a concurrent-ruby pool. Each task builds strings,
# arrays and hashes (many tiny ones, most bytes in buffers of 4 to 500 KB that grow by appending), waits in
# between as for a database or a client, and may put its results into a store of bounded size, from which
# random older results are dropped. So blocks of all sizes and ages lie side by side, and most are freed by
# the garbage collector on another thread than the one that allocated them. About 130 MB are live in the full
# form: the store, garbage that is not collected yet, and what the tasks are working on.
#
# The work is fixed, so wall times are comparable. Every kept result has a checksum, verified when it is
# dropped: a block that somebody overwrote counts as an error, and errors make the exit status 1.
#
# It does not know which allocator it runs on. Run it as
#   snug compare -- bench/workloads/ruby_threads.rb [--quick]
# With BENCH_HOOKS=1 its tasks tell bindings/gem when they run, so that it collects garbage when none does.

require "json"
require "zlib"
require_relative "pooled_run"

# What a run consists of; every field is an option of the same name.
Settings = Struct.new(:threads, :feeders, :tasks, :seed, :keep_mb, :wait_ms, :idle_seconds, keyword_init: true) do
  def self.full
    new(threads: 32, feeders: 4, tasks: 14_000, seed: 1, keep_mb: 60, wait_ms: 10, idle_seconds: 3)
  end

  def make_quick
    self.tasks = 2_600
    self.keep_mb = 30
    self.idle_seconds = 1
  end
end

# Results that are kept for random times: at most `limit_bytes` of them, random ones leave when more come.
# The limit itself moves up and down between 60 % and 100 % with the progress of the run, as load does.
class Store
  Entry = Struct.new(:value, :size_bytes, :checksum)

  WAVES = 4

  attr_reader :damaged

  def initialize(limit_bytes, seed)
    @limit_bytes = limit_bytes
    @random = Random.new(seed)
    @lock = Mutex.new
    @entries = []
    @kept_bytes = 0
    @damaged = 0
  end

  # progress: 0.0 at the start of the run, 1.0 at its end.
  def keep(value, size_bytes, progress)
    entry = Entry.new(value, size_bytes, checksum_of(value))
    dropped = @lock.synchronize do
      @entries << entry
      @kept_bytes += size_bytes
      take_until(@limit_bytes * (0.8 + 0.2 * Math.cos(2 * Math::PI * WAVES * progress)))
    end
    verify(dropped)
  end

  def verify_rest
    verify(@lock.synchronize { take_until(0) })
  end

  private

  def take_until(limit_bytes)
    dropped = []
    while @kept_bytes > limit_bytes && !@entries.empty?
      position = @random.rand(@entries.size)
      entry = @entries[position]
      @entries[position] = @entries.last
      @entries.pop
      @kept_bytes -= entry.size_bytes
      dropped << entry
    end
    dropped
  end

  def verify(entries)
    bad = entries.count { |entry| checksum_of(entry.value) != entry.checksum }
    @lock.synchronize { @damaged += bad } if bad.positive?
  end

  # Array#hash and Hash#hash go through all content.
  def checksum_of(value)
    value.is_a?(String) ? Zlib.crc32(value) : value.hash
  end
end

# Words and rows as a database or a client would send them, made from a task's own random numbers.
module Content
  WORDS = %w[arrival balance customer delivery estimate freight gradient harbour invoice journal kilogram
             ledger manifest notice order parcel quantity receipt shipment transport unit voucher
             warehouse yield].freeze

  def self.sentence(random, words)
    text = String.new
    words.times { text << WORDS[random.rand(WORDS.size)] << " " }
    text
  end

  def self.record(random)
    { "id" => random.rand(1 << 30), "customer" => sentence(random, 3), "address" => sentence(random, 5),
      "remark" => sentence(random, 10), "quantity" => random.rand(100), "price" => random.rand(10_000),
      "code" => random.rand(1 << 60).to_s(36) * 3 }
  end

  def self.csv(rows)
    rows.each_with_object(String.new) { |row, text| text << row.values.join(";") << "\n" }
  end
end

# The things that a task makes. Each grows by `grow` until `grown?`, a little at a time, so that a task can
# make several at once; `value` is the result, `size_bytes` roughly what keeping it costs.

# Bytes as they come in from a socket.
class Upload
  CHUNK_BYTES = 4096

  attr_reader :value

  def initialize(wanted_bytes)
    @wanted_bytes = wanted_bytes
    @value = String.new
  end

  def grow(random)
    @value << random.bytes(CHUNK_BYTES)
  end

  def grown?
    @value.bytesize >= @wanted_bytes
  end

  def size_bytes
    @value.bytesize
  end
end

# HTML put together from small pieces.
class Page < Upload
  def grow(random)
    @value << "<tr class=\"row\"><td>" << Content.sentence(random, 6) << "</td><td>"
    @value << random.rand(1_000_000).to_s << "</td><td>" << Content.sentence(random, 12) << "</td></tr>\n"
  end
end

# Rows of a database; the result is the rows, or their text as CSV or JSON.
class Report
  ROW_BYTES = 700

  def initialize(wanted_bytes)
    @wanted_rows = [wanted_bytes / ROW_BYTES, 4].max
    @rows = []
  end

  def grow(random)
    @rows << Content.record(random)
  end

  def grown?
    @rows.size >= @wanted_rows
  end

  def value
    @value ||= case @wanted_rows % 3
               when 0 then @rows
               when 1 then Content.csv(@rows)
               else JSON.generate(JSON.parse(JSON.generate(@rows)))
               end
  end

  def size_bytes
    value.is_a?(String) ? value.bytesize : @rows.size * ROW_BYTES
  end
end

# A hash from terms to arrays of positions.
class Index
  TERM_BYTES = 300

  attr_reader :value

  def initialize(wanted_bytes)
    @wanted_terms = [wanted_bytes / TERM_BYTES, 8].max
    @value = {}
    @position = 0
  end

  def grow(random)
    8.times do
      word = Content::WORDS[random.rand(Content::WORDS.size)]
      (@value["#{word}-#{random.rand(@wanted_terms)}-#{word.reverse}-term"] ||= []) << (@position += 1)
    end
  end

  def grown?
    @position >= @wanted_terms * 3
  end

  def size_bytes
    @value.size * TERM_BYTES
  end
end

# One task: what it does depends on the seed and its number alone. Most are requests; every so often one is a
# batch, as a server has its monthly reports: many rows at once, dropped when it ends but for a few.
class Task
  KINDS = [Upload, Page, Report, Index].freeze
  SMALLEST_BYTES = 4096
  SPREAD = 120.0 # the largest results are this many times the smallest: 480 KB
  BATCH_EVERY = 90
  BATCH_ROWS = 6_000..18_000
  SLICE_ROWS = 500

  def initialize(number, settings, store)
    @number = number
    @settings = settings
    @store = store
    @random = Random.new(settings.seed * 1_000_003 + number)
  end

  def run
    (@number % BATCH_EVERY).zero? ? run_batch : run_request
    wait
  end

  private

  def run_request
    parts = Array.new(2 + @random.rand(5)) { KINDS[@random.rand(KINDS.size)].new(wanted_bytes) }
    grow_all(parts)
    parts.each { |part| keep(part.value, part.size_bytes) if @random.rand < 0.5 }
  end

  # A part at a time grows by a few pieces, then another, as data comes in.
  def grow_all(parts)
    growing = parts.dup
    until growing.empty?
      part = growing[@random.rand(growing.size)]
      4.times { part.grow(@random) }
      growing.delete(part) if part.grown?
      wait if @random.rand < 0.04
    end
  end

  def run_batch
    slices = Array.new(@random.rand(BATCH_ROWS) / SLICE_ROWS) do
      wait
      Array.new(SLICE_ROWS) { Content.record(@random) }
    end
    texts = slices.map do |rows|
      wait
      Content.csv(rows)
    end
    keep(texts.last, texts.last.bytesize)
    keep(slices.map { |rows| rows[@random.rand(SLICE_ROWS)] }, slices.size * Report::ROW_BYTES)
  end

  def keep(value, size_bytes)
    @store.keep(value, size_bytes, @number.fdiv(@settings.tasks))
  end

  # Stands for a query or a slow client: other threads run meanwhile.
  def wait
    sleep(@random.rand * @settings.wait_ms / 1000.0)
  end

  # Many small, few large.
  def wanted_bytes
    (SMALLEST_BYTES * SPREAD**(@random.rand**3)).to_i
  end
end

# Runs all tasks.
class Run < PooledRun
  def initialize(settings)
    super("ruby_threads", "task", settings.tasks, settings.idle_seconds)
    @settings = settings
    @idle = make_idle if ENV.fetch("BENCH_HOOKS", "0") != "0"
    @store = Store.new(settings.keep_mb * 1_000_000, settings.seed)
  end

  def execute
    super
    @store.verify_rest
    @errors.increment(@store.damaged)
    warn "ruby_threads: #{@store.damaged} kept results were damaged" if @store.damaged.positive?
  end

  private

  # The semaphore keeps the pool's queue short, as a server's backlog would be.
  def work
    pool = Concurrent::FixedThreadPool.new(@settings.threads)
    room = Concurrent::Semaphore.new(@settings.threads * 2)
    remaining = Concurrent::CountDownLatch.new(@settings.tasks)
    numbers = Concurrent::AtomicFixnum.new(-1)
    feeders = Array.new(@settings.feeders) do
      Thread.new do
        while (number = numbers.increment) < @settings.tasks
          room.acquire
          pool.post(number) { |task_number| execute_task(task_number, room, remaining) }
        end
      end
    end
    feeders.each(&:join)
    remaining.wait
    pool.shutdown
    pool.wait_for_termination
  end

  def execute_task(number, room, remaining)
    task = Task.new(number, @settings, @store)
    measure(number) { @idle ? @idle.work { task.run } : task.run }
  ensure
    room.release
    remaining.count_down
  end

  # As other workloads with hooks, it is idle after half of the quiet time.
  def make_idle
    $LOAD_PATH.unshift(File.expand_path("../../bindings/gem/lib", __dir__))
    require "snug/idle"
    ENV["SNUG_IDLE_SECONDS"] = (@settings.idle_seconds / 2.0).to_s
    Snug::Idle.new
  end
end

Run.finish(parse_options("ruby_threads", Settings.full,
                         about: "Defaults are the full form, about 40 s.",
                         quick: "a short form of about 8 s with a smaller live set",
                         rows: {
                           threads: [Integer, "threads in the pool"],
                           feeders: [Integer, "threads that post tasks"],
                           tasks: [Integer, "tasks in all"],
                           seed: [Integer, "what the tasks do"],
                           keep_mb: [Integer, "most that is kept, MB"],
                           wait_ms: [Float, "longest single wait"],
                           idle_seconds: [Float, "quiet time at the end"],
                         },
                         at_least_one: %i[threads feeders tasks]))
