# frozen_string_literal: true

class ProductsController < ApplicationController
  def index
    @page = params[:page].to_i
    @products = Product.page(@page).includes(:reviews).to_a
  end

  def show
    @product = Product.find(params[:id])
    @reviews = @product.reviews.order(:id).to_a
  end

  # Photos stay in the cache as long as it has room.
  def photo
    data = Rails.cache.fetch(["photo", params[:id]]) { Product.find(params[:id]).photo.data }
    send_data data, type: "application/octet-stream", disposition: "inline"
  end

  def search
    products = Product.named_like(params[:q]).limit(150)
    render json: { query: params[:q], products: products.as_json(except: :sku) }
  end
end
