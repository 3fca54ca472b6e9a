# frozen_string_literal: true

# A small web shop: the Rails application of the workloads rails_puma and sidekiq. All its state is in
# SHOP_DIRECTORY.

begin
  require "rails"
  require "active_record/railtie"
  require "action_controller/railtie"
  require "action_view/railtie"
  require "sqlite3"
  require "csv"
rescue LoadError => e
  abort "shop: #{e.message}; run: tools/install-deps bench"
end

module Shop
  DIRECTORY = ENV.fetch("SHOP_DIRECTORY")

  class Application < Rails::Application
    config.root = File.expand_path("..", __dir__)
    config.load_defaults 6.1
    config.eager_load = true
    config.cache_classes = true
    config.consider_all_requests_local = false
    config.action_controller.perform_caching = true
    config.action_controller.default_protect_from_forgery = false
    config.cache_store = :memory_store, { size: Integer(ENV.fetch("SHOP_CACHE_MB", "24")) << 20 }
    config.logger = ActiveSupport::Logger.new(File.join(DIRECTORY, "rails.log"))
    config.log_level = :info
    config.secret_key_base = "only for measurements on this machine"
    config.paths["tmp"] = File.join(DIRECTORY, "tmp")
    config.paths["log"] = File.join(DIRECTORY, "rails.log")
    config.session_store :disabled
  end
end

# While one thread or process writes, others wait for the database. SQLite's own timeout would wait with
# Ruby's lock held, and so keep the thread that writes from ending.
#
# A transaction asks for the right to write when it begins. One that reads first, as Rails does for a table's
# indexes before its first insert in a process, and writes after another process has written, is refused at once,
# whatever the busy handler says: what it read is no longer true (SQLITE_BUSY_SNAPSHOT).
module PatientConnection
  RETRY_SECONDS = 0.002
  RETRIES = 30_000

  def begin_db_transaction
    log("begin immediate transaction", "TRANSACTION") { raw_connection.transaction(:immediate) }
  end

  def configure_connection
    super
    raw_connection.busy_handler do |tries|
      sleep RETRY_SECONDS
      tries < RETRIES
    end
  end
end

ActiveSupport.on_load(:active_record) do
  require "active_record/connection_adapters/sqlite3_adapter"
  ActiveRecord::ConnectionAdapters::SQLite3Adapter.prepend(PatientConnection)
end
