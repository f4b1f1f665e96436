"""The shop's tables, in the same database as its jobs."""

import os

from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

URL = os.environ.get("PENSTOCK_URL", "sqlite:///shop.db")
engine = create_engine(URL.replace("postgresql://", "postgresql+psycopg://"))


class Base(DeclarativeBase):
    """What SQLAlchemy knows of the database."""


class Order(Base):
    """An order of a customer."""

    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    confirmed: Mapped[bool] = mapped_column(default=False)
