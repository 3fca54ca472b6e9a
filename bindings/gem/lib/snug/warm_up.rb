# frozen_string_literal: true

require "snug/hooks"
require "stringio"
require "uri"

module Snug
  # A server's first requests or jobs, before it forks: what they load, compile and cache is then shared by all workers, instead
  # of being made by each. Opt-in, since the application's code runs in the process that forks:
  #
  #   SNUG_WARM_UP="/ /products?page=2 https://shop.example/"   GET requests to the application, for Puma with preload_app!
  #   SNUG_WARM_UP="ReportJob"                                  classes whose objects perform without arguments
  #   SNUG_WARM_UP="Shop::Cache.fill"                           methods of any module
  #   SNUG_WARM_UP_SECONDS                                      all of it takes at most this long (10)
  #
  # A failure is said, and harmless. What it opens it has to close; connections of Active Record are closed here.
  module WarmUp
    # Not a StandardError, so that an application that goes on after these does not go on after this.
    class TimeIsOver < Exception; end # rubocop:disable Lint/InheritException
    private_constant :TimeIsOver

    class << self
      # Does what SNUG_WARM_UP says; paths by the application that the block returns.
      def run(&application)
        words = ENV.fetch("SNUG_WARM_UP", "").split
        seconds = Snug.setting("SNUG_WARM_UP_SECONDS", 10)
        return if words.empty? || seconds.zero?

        sockets = open_sockets
        in_time(words, seconds) { |word| Snug::WarmUp.do(word, &application) }
        close_databases
        left = (open_sockets - sockets).size
        warn "snug: the warm-up left #{left} sockets open, which workers would share; have a method of yours close them" if left.positive?
      end

      # One word of SNUG_WARM_UP.
      def do(word)
        if word.include?("/")
          raise ArgumentError, "there is no application here to send requests to" unless block_given?

          request(yield, word)
        else
          name, method = word.split(".", 2)
          found = Object.const_get(name)
          method ? found.public_send(method) : found.new.perform
        end
      end

      private

      # The thread that says when the time is over may do so as the last word ends: hence the order of masks.
      def in_time(words, seconds, &one)
        done = []
        main = Thread.current
        Thread.handle_interrupt(TimeIsOver => :never) do
          timer = Thread.new { sleep(seconds) && main.raise(TimeIsOver) }
          Thread.handle_interrupt(TimeIsOver => :immediate) { words.each { |word| done << word if attempt(word, &one) } }
        ensure
          timer.kill.join
        end
      rescue TimeIsOver
        said = format("after %<seconds>g s, with %<done>d of %<all>d done: ", seconds: seconds, done: done.size, all: words.size)
        warn "snug: the warm-up ended #{said}#{done.join(' ')}" if done.size < words.size
      end

      def attempt(word)
        yield word
        true
      rescue StandardError, ScriptError, SystemExit, SystemStackError => e # exit would end the server
        warn "snug: the warm-up goes on without #{word}: #{e.class}: #{e.message}"
        false
      end

      def request(application, target)
        status, _, body = application.call(environment(URI.parse(target)))
        body.each { |part| part } if body.respond_to?(:each)
        body.close if body.respond_to?(:close)
        warn "snug: the warm-up's #{target} was answered with #{status}" if status.to_i >= 400
      end

      def environment(address)
        scheme = address.scheme || "http"
        port = (address.port || 80).to_s
        host = address.host || "127.0.0.1"
        { "REQUEST_METHOD" => "GET", "SCRIPT_NAME" => "", "PATH_INFO" => address.path.empty? ? "/" : address.path, "QUERY_STRING" => address.query.to_s,
          "SERVER_NAME" => host, "SERVER_PORT" => port, "HTTP_HOST" => host, "HTTPS" => scheme == "https" ? "on" : "off", "REMOTE_ADDR" => "127.0.0.1",
          "SERVER_PROTOCOL" => "HTTP/1.1", "HTTP_VERSION" => "HTTP/1.1", "HTTP_ACCEPT" => "*/*", "rack.version" => [1, 6], "rack.url_scheme" => scheme,
          "rack.input" => StringIO.new("".b), "rack.errors" => $stderr, "rack.multithread" => true, "rack.multiprocess" => true, "rack.run_once" => false }
      end

      # Rails opens them again where they are needed.
      def close_databases
        return unless defined?(ActiveRecord::Base)

        handler = ActiveRecord::Base.connection_handler
        Snug.harmless { handler.method(:clear_all_connections!).arity.zero? ? handler.clear_all_connections! : handler.clear_all_connections!(:all) }
      end

      # Descriptors that are sockets, by what they are.
      def open_sockets
        Dir.children("/proc/self/fd").filter_map do |number|
          name = File.readlink("/proc/self/fd/#{number}")
          name if name.start_with?("socket:")
        rescue SystemCallError
          nil
        end
      end
    end
  end
end
