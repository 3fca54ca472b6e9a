# frozen_string_literal: true

# What the Ruby programs here that work in a pool of threads share: how long each piece of work took and what failed, the
# numbers at the end, the command line.

require "optparse"

begin
  require "concurrent"
rescue LoadError
  abort "#{File.basename($PROGRAM_NAME, ".rb")}: the Ruby library concurrent-ruby is missing; run: tools/install-deps bench"
end

# One run of a program. Subclasses do all the work in `work`, each piece of it within `measure`.
class PooledRun
  attr_reader :errors

  # unit: what a piece of work is called; count: how many there are.
  def initialize(name, unit, count, idle_seconds)
    @name = name
    @unit = unit
    @idle_seconds = idle_seconds
    @durations_ms = Array.new(count, 0.0)
    @errors = Concurrent::AtomicFixnum.new
  end

  def execute
    started = now
    work
    @work_seconds = now - started
    sleep @idle_seconds
    @idle_rss_mb = File.read("/proc/self/status")[/^VmRSS:\s+(\d+)/, 1].to_i * 1024 / 1e6
  end

  def print_metrics
    sorted = @durations_ms.sort
    metrics = { "#{@unit}s_per_s": sorted.size / @work_seconds, p50_ms: sorted[sorted.size / 2],
                p99_ms: sorted[sorted.size * 99 / 100], idle_rss_mb: @idle_rss_mb }
    metrics.each { |name, value| puts "snug-metric: #{name}=#{value.round(2)}" }
    puts "snug-metric: errors=#{@errors.value}"
  end

  # Runs to the end of the process, whose status says whether all went well.
  def self.finish(settings)
    %w[INT TERM].each { |signal| trap(signal) { exit! 130 } }
    run = new(settings)
    run.execute
    run.print_metrics
    exit(run.errors.value.zero? ? 0 : 1)
  end

  private

  # Times the piece of work with this number; an exception makes it an error.
  def measure(number)
    started = now
    yield
  rescue StandardError => e
    warn "#{@name}: #{@unit} #{number} failed: #{e.class}: #{e.message}" if @errors.increment <= 5
  ensure
    @durations_ms[number] = (now - started) * 1000
  end

  def now
    Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end

# The settings that a command line asks for: those of `settings`, a Struct, shortened by --quick and changed by options of
# its fields. rows: for each field the option's type and its help. Those of at_least_one must be positive.
def parse_options(name, settings, about:, quick:, rows:, at_least_one:)
  settings.make_quick if ARGV.include?("--quick")
  parser = OptionParser.new do |options|
    options.banner = "Usage: #{name}.rb [options]\n#{about}"
    options.on("--quick", quick) {}
    rows.each do |field, (type, help)|
      option = "--#{field.to_s.tr("_", "-")} N"
      options.on(option, type, "#{help} (#{settings[field]})") { |value| settings[field] = value }
    end
  end
  rest = parser.parse(ARGV)
  abort "#{name}: unexpected argument #{rest.first.inspect}; see --help" unless rest.empty?
  unless at_least_one.all? { |field| settings[field].positive? }
    *others, last = at_least_one.map { |field| "--#{field}" }
    abort "#{name}: #{others.join(", ")} and #{last} must be at least 1"
  end
  settings
rescue OptionParser::ParseError => e
  abort "#{name}: #{e.message}; see --help"
end
