# frozen_string_literal: true

# `plugin :snug` in config/puma.rb, with workers and preload_app!: makes the heap ready before workers are forked.
require "puma/plugin"
require "snug"

Puma::Plugin.create do
  def config(configuration)
    configuration.before_fork { Snug.prepare_fork }
  end
end
