# C extensions of the standard library allocate, and free, on their own. usage: extensions.rb SCALE
require 'bigdecimal'
require 'csv'
require 'digest'
require 'erb'
require 'json'
require 'openssl'
require 'rexml/document'
require 'ripper'
require 'set'
require 'stringio'
require 'tempfile'
require 'yaml'
require 'zlib'

scale = Integer(ARGV[0])

data = Array.new(2000) do |i|
  { 'id' => i, 'name' => "name #{i}" * (i % 9), 'tags' => %w[a b c].take(i % 4), 'price' => i / 8.0 }
end
scale.times do
  abort 'json' unless JSON.parse(JSON.pretty_generate(data)) == data
  abort 'yaml' unless YAML.load(YAML.dump(data.first(500))) == data.first(500)
  abort 'marshal' unless Marshal.load(Marshal.dump(data)) == data
  rows = CSV.parse(CSV.generate { |csv| data.each { |row| csv << row.values_at('id', 'name', 'price') } })
  abort 'csv' unless rows.map { |row| row[0].to_i } == (0...2000).to_a
  text = JSON.generate(data)
  20.times { |level| abort 'zlib' unless Zlib.inflate(Zlib.deflate(text, level % 10)) == text }
  io = StringIO.new(String.new) # of bytes: gunzip counts a header of UTF-8 in characters before Ruby 3.3 (ruby/zlib 55)
  Zlib::GzipWriter.wrap(io) { |gz| 200.times { gz.write(text) } }
  abort 'gzip' unless Zlib.gunzip(io.string) == text * 200
  xml = data.first(300).map { |row| "<row id='#{row['id']}'>#{row['name']}</row>" }.join
  document = REXML::Document.new("<all>#{xml}</all>")
  abort 'rexml' unless document.root.elements.to_a('row').size == 300
  template = ERB.new('<% data.each do |row| %><%= row["id"] %>,<% end %>')
  abort 'erb' unless template.result_with_hash(data: data).count(',') == 2000
  abort 'ripper' unless Ripper.sexp("#{'def m(a) = a.map { |b| "#{b}" }; ' * 300}")
  abort 'bigdecimal' unless BigDecimal(2).sqrt(500).to_s.start_with?('0.14142135623730950488')
  key = OpenSSL::PKey::RSA.new(2048)
  abort 'rsa' unless key.verify('SHA256', key.sign('SHA256', text), text)
  cipher = OpenSSL::Cipher.new('aes-256-gcm').encrypt
  cipher.key = 'k' * 32
  cipher.iv = 'i' * 12
  sealed = cipher.update(text) + cipher.final
  open = OpenSSL::Cipher.new('aes-256-gcm').decrypt
  open.key = 'k' * 32
  open.iv = 'i' * 12
  open.auth_tag = cipher.auth_tag
  abort 'cipher' unless open.update(sealed) + open.final == text
  Tempfile.create('snug') do |file|
    file.write(text * 20)
    file.rewind
    abort 'file' unless file.each_line('}').sum(&:size) == text.size * 20
  end
  compiled = RubyVM::InstructionSequence.compile("x = 0; #{(1..3000).map { |i| "x += #{i}" }.join('; ')}; x").eval
  abort 'compile' unless compiled == 3000 * 3001 / 2
end
puts 'extensions ok'
