# frozen_string_literal: true

require "prometheus/client"
