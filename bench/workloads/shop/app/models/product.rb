# frozen_string_literal: true

class Product < ApplicationRecord
  PER_PAGE = 60

  has_many :reviews
  has_many :line_items
  has_one :photo

  scope :page, ->(number) { order(:id).limit(PER_PAGE).offset(PER_PAGE * number) }
  scope :named_like, ->(text) { where("name LIKE ?", "%#{sanitize_sql_like(text)}%").order(:name, :id) }

  # Products of the same category, kept in the cache as a shop would do.
  def related
    Rails.cache.fetch(["related", id], expires_in: 30.seconds) do
      Product.where(category: category).where.not(id: id).order(:price_cents).limit(12).to_a
    end
  end
end
