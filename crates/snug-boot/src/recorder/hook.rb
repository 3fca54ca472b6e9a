# frozen_string_literal: true

# Tells `snug boot` before and after each file that the first thread requires, and waits while it reads this process from
# outside. Every line begins with the program's own time in nanoseconds, in which that waiting is left out. Loads nothing,
# since whatever it loads would be missing from what the program pays.
module SnugBoot
  class << self
    def start(folder)
      return unless owner?(File.join(folder, "owner"))

      @requests = File.open(File.join(folder, "requests"), File::WRONLY)
      @replies = File.open(File.join(folder, "replies"), File::RDONLY)
      @thread = Thread.current
      @again = {}
      @lost = 0
      @pid = Process.pid
      trace if ENV["SNUG_BOOT_OBJECTS"]
      tell("start #{@pid} ruby #{RUBY_VERSION}")
      at_exit { finish }
    end

    def measure(name, is_load)
      return yield unless @pid == Process.pid && @thread == Thread.current

      begin
        name = name.respond_to?(:to_path) ? name.to_path : name.to_str
      rescue StandardError
        return yield
      end
      tell("+ #{name}")
      state = "failed"
      begin
        loaded = yield
        state = loaded || is_load ? "loaded" : "again"
        loaded
      ensure
        path = nil
        if state == "again"
          @again[name] = true
        elsif state == "loaded"
          path = is_load ? File.expand_path(name) : $LOADED_FEATURES.last
          put_back if Kernel.instance_method(:require).source_location.nil?
        end
        tell("- #{state} #{path}")
      end
    end

    # Notes what stands in Kernel now as ours.
    def keep
      @ours = [Kernel, Kernel.singleton_class].map { |kernel| [kernel, kernel.instance_method(:require)] }
    end

    private

    # Bundler puts Ruby's own in the place of all that others made of `require`, as soon as it has chosen the gems.
    def put_back
      @ours.each do |kernel, ours|
        is_private = kernel.private_method_defined?(:require)
        kernel.send(:alias_method, :require_before_snug_boot, :require)
        kernel.send(:define_method, :require, ours)
        kernel.send(:private, :require) if is_private
      end
    end

    # Of all processes that read this, one is measured: the first, and what it executes.
    def owner?(path)
      File.open(path, File::WRONLY | File::CREAT | File::EXCL) { |file| file.write(Process.pid.to_s) }
      true
    rescue Errno::EEXIST
      File.read(path) == Process.pid.to_s
    end

    def tell(what)
      return unless @pid

      before = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
      @requests.syswrite("#{before - @lost} #{what.b.tr("\n", " ").byteslice(0, 4000)}\n")
      @replies.sysread(1)
      @lost += Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) - before
    rescue StandardError
      @pid = nil # nobody listens any more; whatever it is, the program goes on
    end

    def finish
      return unless @pid == Process.pid

      tell("end")
      GC.start
      tell("collected")
      @again.each_key do |name|
        kind, path = $LOAD_PATH.resolve_feature_path(name)
        tell("path #{name}\t#{path}") if kind && path
      rescue LoadError, StandardError
        next
      end
      tell_objects if @tracing
      tell("done")
    end

    def trace
      require "objspace"
      ObjectSpace.trace_object_allocations_start
      @tracing = true
    end

    def tell_objects
      ObjectSpace.trace_object_allocations_stop
      counts = Hash.new { |hash, file| hash[file] = [0, 0] }
      ObjectSpace.each_object(BasicObject) do |object|
        file = ObjectSpace.allocation_sourcefile(object)
        next unless file

        count = counts[file]
        count[0] += 1
        count[1] += ObjectSpace.memsize_of(object)
      end
      counts.each { |file, (objects, bytes)| tell("objects #{objects} #{bytes} #{file}") }
    end
  end
end

module Kernel
  [:require, :load].each do |method|
    original = :"#{method}_before_snug_boot"
    [self, singleton_class].each { |kernel| kernel.send(:alias_method, original, method) }
  end

  def require(name)
    SnugBoot.measure(name, false) { require_before_snug_boot(name) }
  end

  def load(name, *wrap)
    SnugBoot.measure(name, true) { load_before_snug_boot(name, *wrap) }
  end

  # Ruby's own calls no method, and asks who called.
  def require_relative(name)
    from = caller_locations(1, 1).first
    base = from && (from.absolute_path || (File.exist?(from.path) && File.realpath(from.path)))
    raise LoadError, "cannot infer basepath" unless base

    require(File.expand_path(name, File.dirname(base)))
  end

  private :require, :load, :require_relative

  class << self
    def require(name)
      SnugBoot.measure(name, false) { require_before_snug_boot(name) }
    end

    def load(name, *wrap)
      SnugBoot.measure(name, true) { load_before_snug_boot(name, *wrap) }
    end
  end
end

SnugBoot.keep
SnugBoot.start(ENV["SNUG_BOOT"]) if ENV["SNUG_BOOT"] && File.directory?(ENV["SNUG_BOOT"])
