# frozen_string_literal: true

class Order < ApplicationRecord
  belongs_to :customer
  has_many :line_items

  # Months are numbered from 0.
  scope :in_months, ->(range) { where(month: range).order(:id) }

  # With its lines, for those who read JSON.
  def summary
    lines = line_items.map do |line|
      { product: line.product.as_json(only: %i[id name category]), quantity: line.quantity, total: line.total_cents }
    end
    as_json(except: :customer_id).merge(lines: lines, total: lines.sum { |line| line[:total] })
  end
end
