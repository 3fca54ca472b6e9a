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
  worker_shutdown_timeout 5 # under Ruby 3.3 and Puma 6.6 a worker now and then waits for a thread that has ended, whatever the allocator
  before_fork do
    ActiveRecord::Base.connection_pool.disconnect!
    Process.warmup if ENV["BENCH_BY_HAND"] && Process.respond_to?(:warmup)
  end
  on_worker_boot { ActiveRecord::Base.establish_connection }
end
