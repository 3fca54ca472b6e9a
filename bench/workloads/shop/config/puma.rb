# frozen_string_literal: true

# SHOP_WORKERS=0: one process; otherwise a cluster that loads the application before it forks.

directory = ENV.fetch("SHOP_DIRECTORY")
workers_wanted = Integer(ENV.fetch("SHOP_WORKERS", "0"))

environment "production"
bind "unix://#{File.join(directory, 'puma.sock')}"
threads 5, 5
plugin :snug if ENV["SHOP_HOOKS"] == "1"
workers workers_wanted
if workers_wanted.positive?
  preload_app!
  before_fork do
    ActiveRecord::Base.connection_pool.disconnect!
    Process.warmup if ENV["BENCH_BY_HAND"] && Process.respond_to?(:warmup)
  end
  on_worker_boot { ActiveRecord::Base.establish_connection }
end
