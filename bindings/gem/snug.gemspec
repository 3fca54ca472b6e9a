# frozen_string_literal: true

# release/gems.py puts libsnug.so and the tool beside, for a platform's gem, or the core's sources, for the one that
# compiles them; PLATFORM says which.
Gem::Specification.new do |gem|
  gem.name = "snug"
  gem.version = File.read(File.expand_path("VERSION", __dir__)).strip
  gem.platform = ENV.fetch("PLATFORM", "ruby")
  gem.summary = "malloc(3) that gives memory back to the kernel"
  gem.description = "Runs Puma, Sidekiq and other programs under snug, an allocator that keeps their memory close to what they use."
  gem.authors = ["snug contributors"]
  gem.license = "MIT"
  gem.required_ruby_version = ">= 2.7"
  gem.files = Dir.chdir(__dir__) { Dir["{lib,exe,ext}/**/*", "README.md", "LICENSE", "THIRD-PARTY-LICENSES", "VERSION"].reject { |path| File.directory?(path) }.sort }
  gem.bindir = "exe"
  gem.executables = ["snug"]
  gem.extensions = ["ext/snug/extconf.rb"] if gem.platform == Gem::Platform::RUBY
  gem.add_dependency "fiddle"
  gem.metadata = { "rubygems_mfa_required" => "true" }
end
