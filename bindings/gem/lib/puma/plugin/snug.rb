# frozen_string_literal: true

# `plugin :snug` in config/puma.rb switches the hooks of snug/puma on under any allocator; under snug, `snug run` and the Gemfile do.
require "puma/plugin"
require "snug/puma"

Puma::Plugin.create {}
