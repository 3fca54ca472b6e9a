# frozen_string_literal: true

# The jobs of the workload sidekiq: a shop's background work. Loaded by Sidekiq with -r.

require_relative "../shop/config/application"
begin
  require "sidekiq"
rescue LoadError => e
  abort "sidekiq: #{e.message}; run: tools/install-deps bench"
end

require "snug/sidekiq" if ENV["SHOP_HOOKS"] == "1"

# Sidekiq 6.4 calls redis-rb 4.8 in ways that this warns about, once for every fetch.
Redis.silence_deprecations = true

Shop::Application.initialize!

# One entry per job in the list that the driver reads: milliseconds, then "ok" or what went wrong.
class Recorder
  LIST = "bench:done"

  def call(_worker, job, _queue)
    started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    outcome = "ok"
    yield
  rescue StandardError => e
    outcome = "#{job['class']} #{job['args']}: #{e.class}: #{e.message}"
    raise
  ensure
    duration_ms = (Process.clock_gettime(Process::CLOCK_MONOTONIC) - started) * 1000
    Sidekiq.redis { |connection| connection.rpush(LIST, "#{duration_ms.round(3)} #{outcome}") }
  end
end

Sidekiq.configure_server do |config|
  config.redis = { url: "unix://#{ENV.fetch('BENCH_REDIS_SOCKET')}" }
  config.server_middleware { |chain| chain.add Recorder }
end

# What the jobs share. `number` makes a job the same in every run.
class Job
  include Sidekiq::Worker

  def self.inherited(job)
    super
    job.sidekiq_options retry: false
  end

  def perform(number)
    @random = Random.new(number)
    work
  end

  private

  # Stands for a mail server, an object store, or another service that answers when it likes.
  def wait_for_service(longest_ms)
    sleep(@random.rand * longest_ms / 1000.0)
  end

  # Hands a text to a service in pieces, as over a slow connection.
  def upload(data)
    offset = 0
    while offset < data.bytesize
      piece = data.byteslice(offset, 64 << 10)
      offset += piece.bytesize
      wait_for_service(6)
    end
  end

  def expect(condition, what)
    raise "unexpected: #{what}" unless condition
  end
end

# A customer's statement as an HTML mail.
class StatementJob < Job
  def work
    customer = Customer.order(:id).offset(@random.rand(Customer.count)).first
    orders = customer.orders.includes(line_items: :product).order(:id).to_a
    html = ApplicationController.render(template: "statements/show", layout: "application",
                                        locals: { customer: customer, orders: orders })
    expect html.include?("</html>"), "a page without an end"
    mail = "To: #{customer.email}\r\n\r\n" + [html].pack("m")
    wait_for_service(30)
    upload(mail)
  end
end

# The sales of some months as compressed CSV.
class ExportJob < Job
  def work
    first = @random.rand(12)
    report = SalesReport.new(first..(first + (@random.rand < 0.1 ? 5 : 0)))
    text = report.to_csv
    expect text.count("\n") == report.rows.size + 1, "a report without all its rows"
    upload(ActiveSupport::Gzip.compress(text))
  end
end

# The orders of several customers to another system, and what it answers.
class SyncJob < Job
  def work
    orders = Order.where(customer_id: Array.new(4) { 1 + @random.rand(400) }).includes(line_items: :product)
    request = JSON.generate(orders.map(&:summary))
    wait_for_service(80)
    answer = JSON.parse(request, symbolize_names: true)
    expect answer.size == orders.size, "an answer of another length"
    Rails.cache.write(["synced", @random.rand(300)], answer)
  end
end

# A supplier's stock list, read from a slow connection.
class StockJob < Job
  def work
    text = +"sku,name,quantity,price_cents,remark\n"
    rows = 50 + @random.rand(250)
    rows.times do |row|
      text << format("SK-%06d,%s %d,%d,%d,%s\n", row, "part", @random.rand(1000), @random.rand(100),
                     @random.rand(10_000), "remark " * @random.rand(12))
      wait_for_service(4) if (row % 50).zero?
    end
    expect StockImport.load_csv(text) == [rows, 0], "rows that were refused"
  end
end

# Photos into the cache, through a buffer that grows.
class PhotoJob < Job
  def work
    Photo.where(id: Array.new(6) { 1 + @random.rand(720) }).each do |photo|
      wait_for_service(20)
      source = StringIO.new(photo.data)
      buffer = String.new
      while (piece = source.read(4096))
        buffer << piece
      end
      expect buffer.bytesize == photo.data.bytesize, "a photo of another size"
      Rails.cache.write(["photo", photo.id], buffer)
    end
  end
end
