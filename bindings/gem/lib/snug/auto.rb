# frozen_string_literal: true

# Switches the hooks on in Puma and Sidekiq, whenever they are loaded: `require "snug"` does this in a process under snug, so
# that `gem "snug"` in the Gemfile is enough, and `snug run` has the first Ruby that it starts read this file (RUBYOPT), for
# programs that require no such thing. SNUG_HOOKS=0 leaves them out.
module Snug
  # Looks at what is loaded, after each file, until a server is there.
  module Auto
    # A class of a server's, and what switches hooks on once it can run.
    SERVERS = { "Puma::Cluster" => "snug/puma", "Sidekiq::CLI" => "snug/sidekiq" }.freeze
    HERE = File.expand_path(__FILE__)
    # autoload comes by there, too.
    WATCH = <<~RUBY
      alias_method :snug_original_require, :require
      def require(name)
        snug_original_require(name).tap { |loaded| Snug::Auto.look(name) if loaded }
      end
      private :require, :snug_original_require
    RUBY
    private_constant :WATCH

    class << self
      def begin
        return if @begun || ENV["SNUG_HOOKS"] == "0"

        @begun = true
        @awaited = SERVERS.dup
        SERVERS.each_key { |constant| switch_on(constant) if there?(constant) }
        Kernel.module_eval(WATCH)
      end

      # A file has just been loaded.
      def look(name)
        return unless name.to_s.match?(/puma|sidekiq/)

        @awaited.keys.select { |constant| there?(constant) }.each { |constant| switch_on(constant) }
      end

      # This file is for the first Ruby alone: it may be gone when another starts.
      def leave_environment
        words = ENV.fetch("RUBYOPT", "").split
        return unless words.delete("-r#{HERE}")

        ENV["RUBYOPT"] = words.empty? ? nil : words.join(" ")
      end

      private

      # Whether it is loaded, to its end; that it might be is not enough.
      def there?(constant)
        constant.split("::").inject(Object) do |scope, name|
          return false if !scope.const_defined?(name, false) || scope.autoload?(name)

          scope.const_get(name, false)
        end.method_defined?(:run, false)
      end

      def switch_on(constant)
        file = @awaited.delete(constant) or return
        begin
          require file
        rescue LoadError => e
          raise unless e.path == file

          $LOAD_PATH << File.dirname(HERE, 2)
          require file
        end
        Snug.say("the hooks for #{constant[/\w+/]} are on")
      rescue StandardError, ScriptError => e
        warn "snug: no hooks for #{constant[/\w+/]}: #{e.class}: #{e.message}"
      end
    end
  end
end

Snug::Auto.leave_environment
Snug::Auto.begin
