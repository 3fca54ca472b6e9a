# frozen_string_literal: true

class ImportsController < ApplicationController
  def create
    inserted, refused = StockImport.load_csv(request.raw_post)
    render json: { inserted: inserted, refused: refused }, status: :created
  end
end
