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

require_relative "pooled_run"

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

# Runs all jobs.
class Run < PooledRun
  STRING_BYTES = 1024

  def initialize(settings)
    super("ruby_swing", "job", settings.jobs, settings.idle_seconds)
    @settings = settings
  end

  private

  def work
    pool = Concurrent::FixedThreadPool.new(@settings.threads)
    @settings.jobs.times { |number| pool.post(number) { |job| measure(job) { check(job, make(job)) } } }
    pool.shutdown
    pool.wait_for_termination
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
end

Run.finish(parse_options("ruby_swing", Settings.full,
                         about: "Defaults are the full form, about 90 s.",
                         quick: "a short form of about 3 s with shorter arrays",
                         rows: {
                           threads: [Integer, "threads in the pool"],
                           jobs: [Integer, "jobs in all"],
                           strings: [Integer, "in most arrays"],
                           every: [Integer, "of so many arrays one is longer"],
                           factor: [Integer, "so many times"],
                           idle_seconds: [Float, "quiet time at the end"],
                         },
                         at_least_one: %i[threads jobs strings every factor]))
