# A small web server, which allocates and frees as an application does: each connection has a thread, each request reads
# rows, fills a page with them and keeps a fragment of it for later requests; one in EXPORTS is a long table.
#
#   ruby server.rb POD SOCKET     serves on the socket; POD is the name by which others know the process

require 'json'
require 'socket'

FRAGMENTS = 400
EXPORTS = 50
EXPORT_ROWS = 10_000
FRAGMENT_BYTES = (500..12_000)
WORDS = %w[order customer address invoice article delivery payment return stock price].freeze

class Application
  def initialize
    @fragments = {}
    @lock = Mutex.new
  end

  # The number of a request says all about it.
  def page(number)
    chance = Random.new(number)
    rows = Array.new(number % EXPORTS == 0 ? EXPORT_ROWS : chance.rand(20..200)) { row(chance) }
    fragment = rows.first(40).map { |row| "<tr><td>#{row.values.join('</td><td>')}</td></tr>" }.join * 2
    @lock.synchronize do
      @fragments.delete(@fragments.keys[chance.rand(@fragments.size)]) if @fragments.size >= FRAGMENTS
      @fragments[number] = fragment[0, chance.rand(FRAGMENT_BYTES)]
    end
    JSON.generate(rows)
  end

  def row(chance)
    note = WORDS.sample(random: chance) * chance.rand(1..40)
    { 'id' => chance.rand(1_000_000), 'name' => WORDS.sample(2, random: chance).join(' '), 'note' => note }
  end
end

def serve(application, client)
  while (line = client.gets)
    nil until client.gets.to_s.chomp.empty?
    body = application.page(line[%r{^GET /pages/(\d+) }, 1].to_i)
    client.write("HTTP/1.1 200 OK\r\nContent-Length: #{body.bytesize}\r\n\r\n", body)
  end
rescue SystemCallError
  nil # the client is gone
ensure
  client.close
end

application = Application.new
UNIXServer.open(ARGV.fetch(1)) do |server|
  loop do
    Thread.new(server.accept) { |client| serve(application, client) }
  end
end
