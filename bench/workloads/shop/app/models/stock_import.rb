# frozen_string_literal: true

# Rows that a supplier sends: checked one by one, inserted in one transaction.
class StockImport < ApplicationRecord
  COLUMNS = %w[sku name quantity price_cents remark].freeze

  validates :sku, format: /\A[A-Z]{2}-\d{6}\z/
  validates :name, presence: true
  validates :quantity, :price_cents, numericality: { only_integer: true, greater_than_or_equal_to: 0 }

  # Returns [rows inserted, rows refused].
  def self.load_csv(text)
    good, bad = CSV.parse(text, headers: true).map { |row| new(row.to_h.slice(*COLUMNS)) }.partition(&:valid?)
    transaction do
      good.each_slice(100) { |rows| insert_all!(rows.map { |row| row.attributes.slice(*COLUMNS) }) }
    end
    [good.size, bad.size]
  end
end
