# frozen_string_literal: true

class Order < ApplicationRecord
  belongs_to :customer
  has_many :line_items

  # Months are numbered from 0.
  scope :in_months, ->(range) { where(month: range).order(:id) }
end
