# frozen_string_literal: true

module Snug
  # Says in the log of a Rails application that snug is in its Gemfile and does nothing. SNUG_QUIET=1 silences it.
  class Railtie < Rails::Railtie
    config.after_initialize do
      unless Snug.active? || ENV["SNUG_QUIET"]
        Rails.logger&.warn("snug is in the Gemfile but not active: #{Snug.advice}")
      end
    end
  end
end
