#!/usr/bin/ruby
# frozen_string_literal: true

# ruby_swing: a heap that swings. 30 threads of a pool make arrays of strings of 1 KiB and drop them; every 25th array is
# 150 times longer. So each collection finds hundreds of megabytes to free, and until the next one they are used again:
# how much of them an allocator gives back meanwhile, and what that costs, is what this shows. It is the benchmark that
# articles about Ruby's memory quote.
#
# The work is fixed. Each job looks at its array when it is done; strings that changed count as errors, and errors make the
# exit status 1. It does not know which allocator it runs on. Run it as
#   snug compare -- bench/workloads/ruby_swing.rb [--quick]

require "optparse"

begin
  require "concurrent"
rescue LoadError
  abort "ruby_swing: the Ruby library concurrent-ruby is missing; run: tools/install-deps bench"
end

# What a run consists of; every field is an option of the same name.
Settings = Struct.new(:threads, :jobs, :strings, :every, :factor, :idle_seconds, keyword_init: true) do
  def self.full
    new(threads: 30, jobs: 10_000, strings: 1_000, every: 25, factor: 150, idle_seconds: 3)
  end

  def make_quick
    self.jobs = 1_000
    self.strings = 200
    self.idle_seconds = 1
  end
end

# Runs all jobs and gathers how long each took and what failed.
class Run
  STRING_BYTES = 1024

  attr_reader :errors

  def initialize(settings)
    @settings = settings
    @durations_ms = Array.new(settings.jobs, 0.0)
    @errors = Concurrent::AtomicFixnum.new
  end

  def execute
    started = now
    pool = Concurrent::FixedThreadPool.new(@settings.threads)
    @settings.jobs.times { |number| pool.post(number) { |job| execute_job(job) } }
    pool.shutdown
    pool.wait_for_termination
    @work_seconds = now - started
    sleep @settings.idle_seconds
    @idle_rss_mb = File.read("/proc/self/status")[/^VmRSS:\s+(\d+)/, 1].to_i * 1024 / 1e6
  end

  def print_metrics
    sorted = @durations_ms.sort
    metrics = { jobs_per_s: @settings.jobs / @work_seconds, p50_ms: sorted[sorted.size / 2],
                p99_ms: sorted[sorted.size * 99 / 100], idle_rss_mb: @idle_rss_mb }
    metrics.each { |name, value| puts "snug-metric: #{name}=#{value.round(2)}" }
    puts "snug-metric: errors=#{@errors.value}"
  end

  private

  def execute_job(number)
    started = now
    check(number, make(number))
  rescue StandardError => e
    warn "ruby_swing: job #{number} failed: #{e.class}: #{e.message}" if @errors.increment <= 5
  ensure
    @durations_ms[number] = (now - started) * 1000
  end

  def make(number)
    count = @settings.strings * ((number % @settings.every).zero? ? @settings.factor : 1)
    Array.new(count) { |position| letter(number, position) * STRING_BYTES }
  end

  # All of every 100th string.
  def check(number, strings)
    (0...strings.size).step(100) do |position|
      next if strings[position].count(letter(number, position)) == STRING_BYTES

      raise "a string of it changed"
    end
  end

  def letter(number, position)
    LETTERS[(number + position) % LETTERS.size]
  end

  LETTERS = ("a".."z").to_a.freeze

  def now
    Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end

def parse_options(arguments)
  settings = Settings.full
  settings.make_quick if arguments.include?("--quick")
  parser = OptionParser.new do |options|
    options.banner = "Usage: ruby_swing.rb [options]\nDefaults are the full form, about 90 s."
    options.on("--quick", "a short form of about 3 s with shorter arrays") {}
    options.on("--threads N", Integer, "threads in the pool (#{settings.threads})") { |n| settings.threads = n }
    options.on("--jobs N", Integer, "jobs in all (#{settings.jobs})") { |n| settings.jobs = n }
    options.on("--strings N", Integer, "in most arrays (#{settings.strings})") { |n| settings.strings = n }
    options.on("--every N", Integer, "of so many arrays one is longer (#{settings.every})") { |n| settings.every = n }
    options.on("--factor N", Integer, "so many times (#{settings.factor})") { |n| settings.factor = n }
    options.on("--idle-seconds N", Float, "quiet time at the end (#{settings.idle_seconds})") do |n|
      settings.idle_seconds = n
    end
  end
  rest = parser.parse(arguments)
  abort "ruby_swing: unexpected argument #{rest.first.inspect}; see --help" unless rest.empty?
  unless [settings.threads, settings.jobs, settings.strings, settings.every, settings.factor].all?(&:positive?)
    abort "ruby_swing: --threads, --jobs, --strings, --every and --factor must be at least 1"
  end
  settings
rescue OptionParser::ParseError => e
  abort "ruby_swing: #{e.message}; see --help"
end

%w[INT TERM].each { |signal| trap(signal) { exit! 130 } }
run = Run.new(parse_options(ARGV))
run.execute
run.print_metrics
exit(run.errors.value.zero? ? 0 : 1)
